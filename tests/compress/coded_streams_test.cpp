// Streams in, a dense vector out whose sums travel coded: beside plain sums of maps, with what each codec may
// lose.
#include "compress/coded_streams.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "samples.hpp"
#include "select/catalog.hpp"
#include "sparse/streams.hpp"
#include "support/schedule_world.hpp"

namespace heddle::test {
namespace {

using Vector = std::vector<float>;
constexpr Codec kCodecs[] = {Codec::exact, Codec::f16,   Codec::bf16,    Codec::qsgd8,
                             Codec::qsgd4, Codec::qsgd2, Codec::ternary, Codec::sign};

// Nodes of one rank, of several, of neighbours and of others.
std::vector<TopologyView> topologies(int ranks) {
  std::vector<TopologyView> all{TopologyView::flat(ranks), TopologyView::one_node(ranks)};
  std::vector<std::int32_t> runs;
  std::vector<std::int32_t> mixed;
  for (int r = 0; r < ranks; ++r) {
    runs.push_back(r / 3);
    mixed.push_back(r % 5 == 4 ? 0 : r % 3);
  }
  if (ranks > 3) all.push_back(TopologyView({runs}));
  if (ranks > 3) all.push_back(TopologyView({mixed}));
  return all;
}

std::unique_ptr<World> delayed_world(int size) {
  LoopbackOptions delayed;
  delayed.eager_bytes = 300;
  delayed.max_delay = 7;
  return std::make_unique<LoopbackWorld>(size, delayed);
}

// Values of two decades, either sign; some ranks have nothing, some everything.
std::vector<TestStream> streams_of(int ranks, std::uint64_t dimension, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<TestStream> streams;
  for (int r = 0; r < ranks; ++r) {
    const auto pattern = static_cast<Pattern>((static_cast<std::uint64_t>(r) + seed) % 4);
    TestStream stream;
    stream.dimension = dimension;
    stream.index_type = (static_cast<std::uint64_t>(r) + seed) % 3 == 0 ? IndexType::u64 : IndexType::u32;
    for (const std::uint64_t index : random_indices(pattern, dimension, dimension / 10 + 1, random)) {
      const auto value = static_cast<float>(std::uniform_real_distribution(-1.0, 1.0)(random) *
                                            (random() % 2 == 0 ? 1 : 0.01));
      stream.add(index, &value);
    }
    streams.push_back(std::move(stream));
  }
  return streams;
}

float value_of(const TestStream& stream, std::size_t i) {
  float value = 0;
  std::memcpy(&value, stream.value(i), sizeof value);
  return value;
}

Vector dense_of(const TestStream& stream) {
  Vector dense(stream.dimension);
  for (std::size_t i = 0; i < stream.indices.size(); ++i)
    dense[stream.indices[i]] = value_of(stream, i);
  return dense;
}

std::map<std::uint64_t, double> sum_of(const std::vector<TestStream>& streams) {
  std::map<std::uint64_t, double> sum;
  for (const TestStream& s : streams) {
    for (std::size_t i = 0; i < s.indices.size(); ++i)
      sum[s.indices[i]] += static_cast<double>(value_of(s, i));
  }
  return sum;
}

// From left to right in the order of ranks; within the nodes first where there are several with several ranks
// each.
Vector fold_in_order(const std::vector<TestStream>& streams, const TopologyView& topology) {
  std::vector<std::vector<std::int32_t>> groups;
  if (topology.nodes() == 1 || topology.nodes() == topology.size()) {
    groups.emplace_back();
    for (int r = 0; r < topology.size(); ++r)
      groups[0].push_back(r);
  } else {
    for (int n = 0; n < topology.nodes(); ++n)
      groups.push_back(topology.members(n));
    std::ranges::sort(groups);
  }
  Vector sum(streams[0].dimension);
  for (const auto& members : groups) {
    Vector part(sum.size());
    for (const std::int32_t r : members) {
      const Vector theirs = dense_of(streams[static_cast<std::size_t>(r)]);
      for (std::size_t i = 0; i < part.size(); ++i)
        part[i] += theirs[i];
    }
    for (std::size_t i = 0; i < sum.size(); ++i)
      sum[i] += part[i];
  }
  return sum;
}

class Trial {
 public:
  Trial(ScheduleWorld& world, const char* name) : world_(world) {
    for (int r = 0; r < world.size(); ++r) {
      schedules.push_back(std::make_shared<const Schedule>(
          find_algorithm(Collective::allreduce, name)->build(world.topology(), r, {0, 2, 2})));
      runs.push_back(std::make_unique<CodedStreams>(schedules.back(), world.of(r)));
    }
  }

  Status run(const std::vector<TestStream>& in, const CodecSettings& settings) {
    std::vector<CodedStreams*> all;
    std::uint64_t entries = 0;
    for (const TestStream& s : in)
      entries += s.indices.size();
    results.assign(in.size(), Vector(in[0].dimension, 99));
    lost.resize(in.size(), Vector(in[0].dimension));
    ++sequence_;
    for (std::size_t r = 0; r < in.size(); ++r) {
      CodedStreamsBinding binding;
      binding.input = in[r].view();
      binding.data = results[r].data();
      binding.rank = static_cast<int>(r);
      binding.settings = settings;
      binding.settings.seed += r;
      binding.lost = lost[r].data();
      binding.most_entries = entries;
      binding.sequence = sequence_;
      HEDDLE_TRY(runs[r]->start(binding));
      all.push_back(runs[r].get());
    }
    return drive(all, entries);
  }

  bool same_everywhere() const {
    return std::ranges::all_of(results, [&](const Vector& each) {
      return each.empty() || std::memcmp(each.data(), results[0].data(), each.size() * sizeof(float)) == 0;
    });
  }

  std::vector<std::shared_ptr<const Schedule>> schedules;
  std::vector<std::unique_ptr<CodedStreams>> runs;
  std::vector<Vector> results;
  std::vector<Vector> lost;

 private:
  ScheduleWorld& world_;
  std::uint32_t sequence_ = 0;
};

const char* algorithm_for(const TopologyView& topology) {
  const bool flat = topology.nodes() == 1 || topology.nodes() == topology.size();
  return flat ? "split_allgather" : "leaders";
}

TEST(CodedStreams, AddUpInTheOrderOfTheRanks) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (const TopologyView& topology : topologies(ranks)) {
      ScheduleWorld world(topology, delayed_world(ranks));
      Trial trial(world, algorithm_for(topology));
      for (const std::uint64_t dimension : {0, 1, 5, 1000, 120000}) {
        if (dimension > 1000 && ranks != 7) continue;
        SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(topology.nodes()) +
                     " nodes, dimension " + std::to_string(dimension));
        const std::vector<TestStream> in = streams_of(ranks, dimension, dimension + 3);
        const Status status = trial.run(in, {Codec::exact});
        ASSERT_TRUE(status.ok()) << status.message();
        ASSERT_TRUE(trial.same_everywhere());
        ASSERT_EQ(trial.results[0], fold_in_order(in, topology));
      }
    }
  }
}

// What is lost of the sums is no more than one coding loses, and all of it is in `lost`.
void expect_one_coding(const Trial& trial, const std::vector<TestStream>& in, const CodecSettings& settings,
                       const std::vector<Vector>& lost_before) {
  const std::map<std::uint64_t, double> exact = sum_of(in);
  double most = 0;
  for (const auto& [index, value] : exact)
    most = std::max(most, std::abs(value));
  const double rounding = 1e-6 * static_cast<double>(in.size());
  const double bound = in.size() == 1 ? 0 : error_bound(settings, most + rounding) + rounding;
  for (std::uint64_t i = 0; i < in[0].dimension; ++i) {
    const auto at = exact.find(i);
    const double expected = at == exact.end() ? 0 : at->second;
    const auto got = static_cast<double>(trial.results[0][i]);
    ASSERT_LE(std::abs(got - expected), bound) << "element " << i;
    double kept = 0;
    for (std::size_t r = 0; r < in.size(); ++r)
      kept += static_cast<double>(trial.lost[r][i]) - static_cast<double>(lost_before[r][i]);
    ASSERT_NEAR(got + kept, expected, 1e-5) << "element " << i;
  }
}

TEST(CodedStreams, LoseNoMoreThanOneCodingOfTheSum) {
  std::uint64_t seed = 0;
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (const TopologyView& topology : topologies(ranks)) {
      ScheduleWorld world(topology, delayed_world(ranks));
      for (const Codec codec : kCodecs) {
        for (const std::uint32_t bucket : {1U, 3U, 1024U}) {
          Trial trial(world, algorithm_for(topology));
          for (const std::uint64_t dimension : {3, 10, 40, 2500}) {
            SCOPED_TRACE(std::string(codec_name(codec)) + ":" + std::to_string(bucket) + ", " +
                         std::to_string(ranks) + " ranks, " + std::to_string(topology.nodes()) +
                         " nodes, dimension " + std::to_string(dimension));
            const std::vector<TestStream> in = streams_of(ranks, dimension, ++seed);
            const CodecSettings settings{codec, bucket, seed};
            trial.lost.assign(in.size(), Vector(dimension, 0.25F));
            const std::vector<Vector> before = trial.lost;
            const Status status = trial.run(in, settings);
            ASSERT_TRUE(status.ok()) << status.message();
            ASSERT_TRUE(trial.same_everywhere());
            ASSERT_NO_FATAL_FAILURE(expect_one_coding(trial, in, settings, before));
          }
        }
      }
    }
  }
}

// Beyond 32 ranks, and other algorithms than those that the communicator takes: partial sums travel exactly
// in all of them.
TEST(CodedStreams, AreCodedOnceInAnyAlgorithmThatSplits) {
  for (const char* name : {"rabenseifner", "split_allgather", "leaders"}) {
    for (const int ranks : {2, 3, 5, 6, 8, 35}) {
      for (const TopologyView& topology : topologies(ranks)) {
        if (ranks == 35 && topology.nodes() != ranks) continue;
        ScheduleWorld world(topology, delayed_world(ranks));
        Trial trial(world, name);
        const std::vector<TestStream> in = streams_of(ranks, 900, static_cast<std::uint64_t>(ranks));
        SCOPED_TRACE(std::string(name) + ", " + std::to_string(ranks) + " ranks");
        const CodecSettings settings{Codec::qsgd8, 64, 5};
        trial.lost.assign(in.size(), Vector(900));
        const std::vector<Vector> before = trial.lost;
        const Status status = trial.run(in, settings);
        ASSERT_TRUE(status.ok()) << status.message();
        ASSERT_TRUE(trial.same_everywhere());
        ASSERT_NO_FATAL_FAILURE(expect_one_coding(trial, in, settings, before));
      }
    }
  }
}

// Each region is sent once to each of the others, coded, and entries cost what entries cost.
TEST(CodedStreams, SendCodedRegionsAndNoMore) {
  constexpr int kRanks = 4;
  constexpr std::size_t kDimension = 8192;
  ScheduleWorld world(TopologyView::flat(kRanks), delayed_world(kRanks));
  Trial trial(world, "split_allgather");
  std::vector<TestStream> in(kRanks);
  for (TestStream& s : in)
    s.dimension = kDimension;
  const CodecSettings settings{Codec::qsgd4};
  ASSERT_TRUE(trial.run(in, settings).ok());
  const std::size_t region = coded_bytes(settings, kDimension / kRanks);
  for (const auto& run : trial.runs)
    EXPECT_EQ(run->bytes_sent(), (kRanks - 1) * (kFirstMessage + region));
}

TEST(CodedStreams, KeepWhatIsNotFiniteVisible) {
  constexpr int kRanks = 3;
  constexpr std::uint64_t kDimension = 300;
  ScheduleWorld world(TopologyView::flat(kRanks), delayed_world(kRanks));
  for (const Codec codec : kCodecs) {
    SCOPED_TRACE(codec_name(codec));
    Trial trial(world, "split_allgather");
    std::vector<TestStream> in(kRanks);
    for (TestStream& s : in)
      s.dimension = kDimension;
    in[0].add(5, &kNan);
    in[1].add(150, &kInfinity);
    const float one = 1;
    in[1].add(250, &one);
    in[2].add(250, &one);
    trial.lost.assign(kRanks, Vector(kDimension));
    ASSERT_TRUE(trial.run(in, {codec, 10, 1}).ok());
    ASSERT_TRUE(trial.same_everywhere());
    const Vector& out = trial.results[0];
    const bool in_place = codec == Codec::exact || codec == Codec::f16 || codec == Codec::bf16;
    EXPECT_TRUE(std::isnan(out[5]));
    EXPECT_EQ(std::isnan(out[4]), !in_place) << "in the same bucket";
    EXPECT_TRUE(in_place ? out[150] == kInfinity : std::isnan(out[150]));
    EXPECT_FALSE(std::isnan(out[20]));
    EXPECT_EQ(out[250], codec == Codec::sign ? out[250] : 2.0F);
    for (const Vector& each : trial.lost)
      EXPECT_TRUE(std::ranges::all_of(each, [](float x) { return std::isfinite(x); }));
  }
}

// On whichever rank the sum is made.
TEST(CodedStreams, BeginWithZeroSoThatNoneIsNegative) {
  constexpr float kNegativeZero = -0.0F;
  for (const TopologyView& topology : topologies(4)) {
    ScheduleWorld world(topology, delayed_world(4));
    for (const Codec codec : {Codec::exact, Codec::f16, Codec::bf16}) {
      Trial trial(world, algorithm_for(topology));
      std::vector<TestStream> in(4);
      for (TestStream& stream : in) {
        stream.dimension = 20;
        for (std::uint64_t i = 0; i < 20; ++i)
          stream.add(i, &kNegativeZero);
      }
      ASSERT_TRUE(trial.run(in, {codec}).ok());
      for (const Vector& result : trial.results)
        EXPECT_TRUE(std::ranges::none_of(result, [](float x) { return std::signbit(x); }));
    }
  }
}

// Sends other bytes than it is given, at one place of all that it sends.
class Damaging final : public Transport {
 public:
  explicit Damaging(std::unique_ptr<Transport> to) : to_(std::move(to)) {}
  std::size_t place = SIZE_MAX;
  std::byte change{};
  std::size_t sent = 0;
  bool spares_lengths = true;  // a length that is too large is waited for

  const TransportCapabilities& capabilities() const override { return to_->capabilities(); }
  Status send(int peer, std::uint32_t tag, const void* data, std::size_t bytes, Ticket& ticket) override {
    const auto* from = static_cast<const std::byte*>(data);
    copies_.emplace_back(from, from + bytes);
    const bool has_length = spares_lengths && bytes == kFirstMessage;
    if (place >= sent + (has_length ? 8 : 0) && place < sent + bytes) copies_.back()[place - sent] ^= change;
    sent += bytes;
    return to_->send(peer, tag, copies_.back().data(), bytes, ticket);
  }
  Status recv(int peer, std::uint32_t tag, void* data, std::size_t bytes, Ticket& ticket) override {
    return to_->recv(peer, tag, data, bytes, ticket);
  }
  Status progress() override { return to_->progress(); }
  void cancel(Ticket& ticket) override { to_->cancel(ticket); }
  bool peer_is_gone(int peer) const override { return to_->peer_is_gone(peer); }

 private:
  std::unique_ptr<Transport> to_;
  std::deque<Bytes> copies_;
};

// One byte that rank 1 sends is another: what comes of it is an error that names the rank, or a sum.
TEST(CodedStreams, RefuseDamage) {
  std::mt19937_64 random(1);
  constexpr int kTrials = 1500;
  int refused = 0;
  for (int trial_number = 0; trial_number < kTrials; ++trial_number) {
    const std::vector<TestStream> in = streams_of(2, 600, random() % 50);
    auto loopback = std::make_unique<LoopbackWorld>(2, LoopbackOptions{});
    auto owned = std::make_unique<Damaging>(std::move(loopback->transports[1]));
    Damaging& damaging = *owned;
    loopback->transports[1] = std::move(owned);
    ScheduleWorld world(TopologyView::flat(2), std::move(loopback));
    Trial trial(world, "split_allgather");
    damaging.place = random() % 700;
    damaging.change = static_cast<std::byte>(1U << random() % 8);
    const Codec codec = kCodecs[random() % std::size(kCodecs)];
    const Status status = trial.run(in, {codec, 100, 7});
    if (status.ok()) continue;
    ++refused;
    EXPECT_EQ(status.code(), Code::internal) << status.message();
    EXPECT_TRUE(status.message().starts_with("from rank 1: ")) << status.message();
  }
  EXPECT_GT(refused, kTrials / 40);
}

TEST(CodedStreams, RefuseLengthsThatCannotBe) {
  const auto run_with = [](std::size_t place, std::byte change) {
    auto loopback = std::make_unique<LoopbackWorld>(2, LoopbackOptions{});
    auto owned = std::make_unique<Damaging>(std::move(loopback->transports[1]));
    owned->spares_lengths = false;
    owned->place = place;
    owned->change = change;
    loopback->transports[1] = std::move(owned);
    ScheduleWorld world(TopologyView::flat(2), std::move(loopback));
    return Trial(world, "split_allgather").run(streams_of(2, 600, 2), {Codec::qsgd8});
  };
  const Status too_much = run_with(5, std::byte{1});
  EXPECT_EQ(too_much.code(), Code::internal);
  EXPECT_NE(too_much.message().find("rank 1 sends"), std::string::npos) << too_much.message();
  const Status handed = run_with(7, std::byte{0x80});
  EXPECT_EQ(handed.code(), Code::internal);
  EXPECT_NE(handed.message().find("was handed over"), std::string::npos) << handed.message();
}

}  // namespace
}  // namespace heddle::test
