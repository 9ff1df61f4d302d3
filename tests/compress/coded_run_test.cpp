// Vectors whose messages are coded, under every algorithm that splits them: in place and not, the same bits
// on all ranks.
#include "compress/coded_run.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "select/catalog.hpp"
#include "support/schedule_world.hpp"

namespace heddle::test {
namespace {

using Vector = std::vector<float>;

float value(int rank, std::size_t i) {
  return std::sin(static_cast<float>(i) + static_cast<float>(rank));
}

class Runs {
 public:
  Runs(ScheduleWorld& world, const char* name) : size_(world.size()) {
    for (int r = 0; r < size_; ++r)
      runs_.push_back(std::make_unique<CodedRun>(
          std::make_shared<const Schedule>(
              find_algorithm(Collective::allreduce, name)->build(world.topology(), r, {0, 2, 2})),
          world.of(r)));
  }

  // The result, which is the same on all ranks.
  void sum(std::size_t count, const CodecSettings& settings, bool in_place, Vector* result) {
    std::vector<Vector> in(runs_.size(), Vector(count));
    std::vector<Vector> out(runs_.size(), Vector(count, 99));
    std::vector<CodedRun*> all;
    ++sequence_;
    for (int r = 0; r < size_; ++r) {
      const auto at = static_cast<std::size_t>(r);
      for (std::size_t i = 0; i < count; ++i)
        in[at][i] = value(r, i);
      if (in_place) out[at] = in[at];
      const Vector& from = in_place ? out[at] : in[at];
      ASSERT_TRUE(runs_[at]->start({from.data(), out[at].data(), count, settings, nullptr, sequence_}).ok());
      all.push_back(runs_[at].get());
    }
    const Status status = drive(all, count);
    ASSERT_TRUE(status.ok()) << status.message();
    for (const Vector& each : out)
      ASSERT_TRUE(each.empty() || std::memcmp(each.data(), out[0].data(), count * sizeof(float)) == 0);
    *result = out[0];
  }

 private:
  int size_;
  std::uint32_t sequence_ = 0;
  std::vector<std::unique_ptr<CodedRun>> runs_;
};

TEST(CodedRun, SumsUnderEveryAlgorithmThatSplits) {
  LoopbackOptions delayed;
  delayed.eager_bytes = 300;
  delayed.max_delay = 7;
  for (const char* name : {"split_allgather", "rabenseifner", "leaders", "two_level_split"}) {
    for (const int ranks : {1, 2, 3, 5, 7, 35}) {
      std::vector<std::int32_t> nodes;
      for (int r = 0; r < ranks; ++r)
        nodes.push_back(r / 2);
      ScheduleWorld world(TopologyView({nodes}), std::make_unique<LoopbackWorld>(ranks, delayed));
      Runs runs(world, name);
      for (const std::size_t count : {0, 2, 10, 900}) {
        for (const bool in_place : {false, true}) {
          SCOPED_TRACE(std::string(name) + ", " + std::to_string(ranks) + " ranks, " + std::to_string(count) +
                       " values" + (in_place ? ", in place" : ""));
          Vector exact;
          ASSERT_NO_FATAL_FAILURE(runs.sum(count, {Codec::exact}, in_place, &exact));
          Vector coded;
          ASSERT_NO_FATAL_FAILURE(runs.sum(count, {Codec::qsgd8, 3, 1}, in_place, &coded));
          ASSERT_NO_FATAL_FAILURE(runs.sum(count, {Codec::sign, 3}, in_place, &coded));
          ASSERT_NO_FATAL_FAILURE(runs.sum(count, {Codec::f16}, in_place, &coded));
          for (std::size_t i = 0; i < count; ++i) {
            float sum = 0;
            for (int r = 0; r < ranks; ++r)
              sum += value(r, i);
            ASSERT_NEAR(exact[i], sum, 1e-4);
            // Codings of values up to 35, ten at most one upon the other.
            ASSERT_NEAR(coded[i], sum, 35 * 0x1p-11 * 10);
          }
        }
      }
    }
  }
}

// One rank's vector, as CodedRun takes it or as others have coded it, and its result, likewise.
struct Part {
  Vector in;
  Vector out;
  Vector lost;
  std::vector<std::byte> contributions;
  Vector held;
  Vector held_lost;
  std::vector<std::byte> codes;

  CodedBinding bind(const CodedPlan& plan, const CodecSettings& settings, bool gives, bool takes) {
    CodedBinding binding{in.data(), out.data(), in.size(), settings, lost.data(), 0};
    if (gives) {
      contributions.resize(plan.contributed_bytes);
      for (const CodedPlan::Chunk& chunk : plan.chunks)
        if (chunk.is_contributed)
          encode(settings, in.data() + chunk.values.first, chunk.values.count, chunk.values.first,
                 contributions.data() + chunk.contributed_at);
      const auto from = in.begin() + static_cast<std::ptrdiff_t>(plan.held.first);
      held.assign(from, from + static_cast<std::ptrdiff_t>(plan.held.count));
      held_lost.assign(plan.held.count, 0);
      binding.contributions = contributions.data();
      binding.input = held.data();
      binding.lost = held_lost.data();
    }
    if (takes) {
      codes.resize(plan.bytes);
      binding.codes = codes.data();
      binding.data = nullptr;
    }
    return binding;
  }
  // What was left to others.
  void finish(const CodedPlan& plan, const CodecSettings& settings, bool gives, bool takes) {
    for (const CodedPlan::Chunk& chunk : plan.chunks) {
      const std::size_t first = chunk.values.first;
      if (takes) {
        ASSERT_TRUE(
            decode(settings, {codes.data() + chunk.at, chunk.bytes}, out.data() + first, chunk.values.count)
                .ok());
      }
      if (!gives || !chunk.is_contributed) continue;
      Vector decoded(chunk.values.count);
      ASSERT_TRUE(decode(settings, {contributions.data() + chunk.contributed_at, chunk.bytes}, decoded.data(),
                         decoded.size())
                      .ok());
      for (std::size_t i = 0; i < decoded.size(); ++i) {
        const float left_out = in[first + i] - decoded[i];
        lost[first + i] = std::isfinite(left_out) ? left_out : 0;
      }
    }
    if (gives)
      std::copy(held_lost.begin(), held_lost.end(),
                lost.begin() + static_cast<std::ptrdiff_t>(plan.held.first));
  }
};

bool same_bits(const Vector& a, const Vector& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// Runs it as it is, and with other ranks in each turn having contributions or the result coded elsewhere.
void compare(ScheduleWorld& world, const char* name, std::size_t count, CodecSettings settings) {
  std::vector<std::unique_ptr<CodedRun>> runs;
  std::vector<Part> wanted(static_cast<std::size_t>(world.size()));
  int given = 0;
  int taken = 0;
  for (int r = 0; r < world.size(); ++r)
    runs.push_back(std::make_unique<CodedRun>(
        std::make_shared<const Schedule>(
            find_algorithm(Collective::allreduce, name)->build(world.topology(), r, {0, 2, 2})),
        world.of(r)));
  for (std::size_t turn = 0; turn < 4; ++turn) {
    std::vector<Part> parts(runs.size());
    std::vector<CodedRun*> all;
    std::vector<bool> gives(runs.size());
    std::vector<bool> takes(runs.size());
    for (std::size_t r = 0; r < runs.size(); ++r) {
      Part& part = parts[r];
      for (std::size_t i = 0; i < count; ++i)
        part.in.push_back(i % 97 == 5 ? -0.0F : value(static_cast<int>(r), i));
      if (count > 12) part.in[11] = std::numeric_limits<float>::infinity();
      part.out.assign(count, 99);
      part.lost.assign(count, 0);
      settings.seed = r;
      const CodedPlan plan = runs[r]->plan(count, settings);
      gives[r] = turn > 0 && (r + turn) % 3 != 0 && plan.takes_contributions;
      takes[r] = turn > 0 && (r + turn) % 2 != 0 && plan.leaves_codes;
      given += gives[r] ? 1 : 0;
      taken += takes[r] ? 1 : 0;
      CodedBinding binding = part.bind(plan, settings, gives[r], takes[r]);
      binding.sequence = static_cast<std::uint32_t>(turn + 1);
      ASSERT_TRUE(runs[r]->start(binding).ok());
      all.push_back(runs[r].get());
    }
    const Status status = drive(all, count);
    ASSERT_TRUE(status.ok()) << status.message();
    for (std::size_t r = 0; r < runs.size(); ++r) {
      settings.seed = r;
      parts[r].finish(runs[r]->plan(count, settings), settings, gives[r], takes[r]);
      if (turn == 0) wanted[r] = parts[r];
      EXPECT_TRUE(same_bits(parts[r].out, wanted[r].out)) << "rank " << r << ", turn " << turn;
      EXPECT_TRUE(same_bits(parts[r].lost, wanted[r].lost)) << "lost on rank " << r << ", turn " << turn;
    }
  }
  if (world.size() == 1) return;
  EXPECT_GT(given, 0);
  EXPECT_GT(taken, 0);
}

TEST(CodedRun, CodedAndDecodedElsewhere) {
  LoopbackOptions delayed;
  delayed.eager_bytes = 300;
  delayed.max_delay = 7;
  for (const char* name : {"split_allgather", "rabenseifner", "leaders"}) {
    for (const int ranks : {1, 2, 3, 5, 7, 35}) {
      std::vector<std::int32_t> nodes;
      for (int r = 0; r < ranks; ++r)
        nodes.push_back(r / 2);
      ScheduleWorld world(TopologyView({nodes}), std::make_unique<LoopbackWorld>(ranks, delayed));
      for (const std::size_t count : {2, 900}) {
        SCOPED_TRACE(std::string(name) + ", " + std::to_string(ranks) + " ranks, " + std::to_string(count));
        compare(world, name, count, {Codec::qsgd8, 3});
        compare(world, name, count, {Codec::sign, 100});
        compare(world, name, count, {Codec::f16});
      }
    }
  }
}

// Who has which chunks.
TEST(CodedRun, Plans) {
  ScheduleWorld world(TopologyView({{0, 0, 1}}), std::make_unique<LoopbackWorld>(3, LoopbackOptions()));
  const auto plan_of = [&](const char* name, int rank) {
    return CodedRun(
               std::make_shared<const Schedule>(
                   find_algorithm(Collective::allreduce, name)->build(world.topology(), rank, {0, 2, 2})),
               world.of(rank))
        .plan(10, {Codec::f16});
  };
  const CodedPlan owner = plan_of("split_allgather", 1);
  EXPECT_TRUE(owner.takes_contributions && owner.leaves_codes);
  EXPECT_EQ(owner.bytes, 20U);
  EXPECT_EQ(owner.contributed_bytes, 14U);
  EXPECT_EQ(owner.held.first, 4U);
  EXPECT_EQ(owner.held.count, 3U);
  EXPECT_EQ(owner.chunks[2].at, 14U);
  EXPECT_EQ(owner.chunks[2].contributed_at, 8U);
  const CodedPlan member = plan_of("leaders", 1);
  EXPECT_TRUE(member.takes_contributions && member.leaves_codes);
  EXPECT_EQ(member.contributed_bytes, 20U);
  EXPECT_EQ(member.held.count, 0U);
  // Its sums are of the whole vector.
  for (const int leader : {0, 2}) {
    const CodedPlan plan = plan_of("leaders", leader);
    EXPECT_TRUE(!plan.takes_contributions && plan.leaves_codes);
    EXPECT_EQ(plan.held.count, 10U);
  }
  // What the node's sums are made of, and what it spreads, is not coded.
  for (const int rank : {0, 1, 2}) {
    const CodedPlan plan = plan_of("two_level_split", rank);
    EXPECT_FALSE(plan.takes_contributions);
    EXPECT_EQ(plan.leaves_codes, rank == 2);
    EXPECT_EQ(plan.held.count, 10U);
  }
  // Of two sums that were sent one has been folded into since, on some rank; and what is sent is folded there
  // too.
  bool leave_codes = true;
  for (int rank = 0; rank < 3; ++rank) {
    const CodedPlan plan = plan_of("recursive_doubling", rank);
    leave_codes = leave_codes && plan.leaves_codes;
    EXPECT_TRUE(!plan.takes_contributions || plan.held.count == 0);
  }
  EXPECT_FALSE(leave_codes);
}

}  // namespace
}  // namespace heddle::test
