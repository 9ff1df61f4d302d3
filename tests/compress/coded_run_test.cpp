// Vectors whose messages are coded, under every algorithm that splits them: in place and not, the same bits on all ranks.
#include "compress/coded_run.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
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
  for (const char* name : {"split_allgather", "rabenseifner", "leaders"}) {
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

}  // namespace
}  // namespace heddle::test
