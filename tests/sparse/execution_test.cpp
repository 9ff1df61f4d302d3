// Schedules over streams: every allreduce of the catalog that sends messages, beside the dense engine on the
// same schedule.
#include "sparse/execution.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine/kernels/kernels.hpp"
#include "schedule/split.hpp"
#include "select/catalog.hpp"
#include "sparse/streams.hpp"
#include "support/schedule_world.hpp"

namespace heddle::test {
namespace {

std::vector<Algorithm> by_messages() {
  std::vector<Algorithm> found;
  for (const Algorithm& a : catalog()) {
    if (a.collective == Collective::allreduce && !a.needs_team) found.push_back(a);
  }
  return found;
}

std::vector<TopologyView> topologies(int ranks, const Algorithm& a) {
  std::vector<TopologyView> all{TopologyView::flat(ranks)};
  if (a.by_nodes && ranks >= 3) {
    all.push_back(TopologyView::one_node(ranks));
    std::vector<std::int32_t> node_of;
    for (int r = 0; r < ranks; ++r)
      node_of.push_back(r % 5 == 4 ? 0 : r % 3);
    all.push_back(TopologyView({node_of}));
  }
  return all;
}

class Trial {
 public:
  Trial(ScheduleWorld& world, const Algorithm& algorithm, const Shape& shape) : world_(world) {
    for (int r = 0; r < world.size(); ++r) {
      schedules_.push_back(std::make_shared<const Schedule>(algorithm.build(world.topology(), r, shape)));
      sparse_.push_back(std::make_unique<StreamExecution>(schedules_.back(), world.of(r)));
    }
  }

  std::vector<std::uint64_t> even_cuts(std::uint64_t dimension) const {
    const Split split(dimension, schedules_[0]->chunks);
    std::vector<std::uint64_t> cuts;
    for (std::uint32_t c = 0; c <= schedules_[0]->chunks; ++c)
      cuts.push_back(split.begin(c));
    return cuts;
  }
  std::vector<std::uint64_t> random_cuts(std::uint64_t dimension, std::mt19937_64& random) const {
    std::vector<std::uint64_t> cuts{0, dimension};
    while (cuts.size() < std::size_t{schedules_[0]->chunks} + 1)
      cuts.push_back(random() % 3 == 0 ? cuts.back() : random() % (dimension + 1));
    std::sort(cuts.begin(), cuts.end());
    return cuts;
  }

  void run(const std::vector<TestStream>& in, Op op, const std::vector<std::uint64_t>& cuts) {
    std::vector<StreamExecution*> all;
    std::uint64_t entries = 0;
    for (const TestStream& s : in)
      entries += s.indices.size();
    for (std::size_t r = 0; r < in.size(); ++r) {
      ASSERT_TRUE(sparse_[r]->start({in[r].view(), op, cuts, entries, 5}).ok());
      all.push_back(sparse_[r].get());
    }
    const Status status = drive(all, entries);
    ASSERT_TRUE(status.ok()) << status.message();
    results_.clear();
    for (const auto& execution : sparse_) {
      TestStream result = in[0];
      result.indices.clear();
      result.index_bytes.clear();
      result.values.clear();
      for (const SparseView& view : execution->result()) {
        for (std::size_t i = 0; i < view.count; ++i)
          result.add(view.index(i),
                     static_cast<const std::byte*>(view.values) + i * dtype_size(view.value_type));
      }
      ASSERT_TRUE(check_sparse(result.view()).ok()) << check_sparse(result.view()).message();
      results_.push_back(std::move(result));
    }
    for (std::size_t r = 1; r < results_.size(); ++r) {
      ASSERT_EQ(results_[r].indices, results_[0].indices) << "rank " << r;
      ASSERT_TRUE(results_[r].values == results_[0].values) << "rank " << r << " has other bits than rank 0";
    }
  }

  // The dense engine on vectors in which an absent entry is 0.
  Bytes dense(const std::vector<TestStream>& in) {
    const DType type = in[0].value_type;
    const std::size_t width = dtype_size(type);
    std::vector<Bytes> data;
    std::vector<std::unique_ptr<Execution>> executions;
    std::vector<Execution*> all;
    for (const TestStream& s : in) {
      data.emplace_back(s.dimension * width);
      for (std::size_t i = 0; i < s.indices.size(); ++i)
        std::memcpy(data.back().data() + s.indices[i] * width, s.value(i), width);
    }
    for (std::size_t r = 0; r < in.size(); ++r) {
      executions.push_back(std::make_unique<Execution>(schedules_[r], world_.of(static_cast<int>(r))));
      Binding b;
      b.input = b.data = data[r].data();
      b.count = in[0].dimension;
      b.element_bytes = width;
      b.fold = fold_kernel(type, Op::sum);
      b.sequence = 9;
      EXPECT_TRUE(executions.back()->start(b).ok());
      all.push_back(executions.back().get());
    }
    EXPECT_TRUE(drive(all, 3).ok());
    return data[0];
  }

  const TestStream& result() const { return results_[0]; }

 private:
  ScheduleWorld& world_;
  std::vector<std::shared_ptr<const Schedule>> schedules_;
  std::vector<std::unique_ptr<StreamExecution>> sparse_;
  std::vector<TestStream> results_;
};

std::unique_ptr<World> delayed_world(int size) {
  LoopbackOptions delayed;
  delayed.eager_bytes = 300;
  delayed.max_delay = 7;
  return std::make_unique<LoopbackWorld>(size, delayed);
}

Pattern pattern_of(int kind, int rank) {
  if (kind == 0) return Pattern::uniform;
  if (kind == 1) return Pattern::clustered;
  if (kind == 2) return rank % 2 == 0 ? Pattern::nothing : Pattern::everything;
  return static_cast<Pattern>((rank + kind) % 4);
}

std::vector<TestStream> streams_of(int ranks, int kind, std::uint64_t dimension, IndexType index_type,
                                   DType type, Values values, std::size_t about, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<TestStream> streams;
  for (int r = 0; r < ranks; ++r)
    streams.push_back(random_stream(pattern_of(kind, r), dimension, index_type, type, values, about, random));
  return streams;
}

class StreamSchedules : public ::testing::TestWithParam<Algorithm> {};
INSTANTIATE_TEST_SUITE_P(Catalog, StreamSchedules, ::testing::ValuesIn(by_messages()),
                         [](const auto& param) { return std::string(param.param.name); });

// With regions where the dense chunks are, the bits are those of the dense schedule: -0, NaN and infinities
// included.
TEST_P(StreamSchedules, GivesTheBitsOfTheDenseSchedule) {
  std::uint64_t seed = 1;
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (const TopologyView& topology : topologies(ranks, GetParam())) {
      ScheduleWorld world(topology, delayed_world(ranks));
      for (const Shape& shape : GetParam().shapes(topology, 1 << 16)) {
        Trial trial(world, GetParam(), shape);
        for (int kind = 0; kind < 4; ++kind) {
          const DType type = std::vector{DType::f32, DType::f64, DType::i32, DType::i64}[seed % 4];
          SCOPED_TRACE(std::to_string(ranks) + " ranks, pattern " + std::to_string(kind) + ", " +
                       dtype_name(type) + ", chunks " + std::to_string(shape.chunks));
          const std::vector<TestStream> in =
              streams_of(ranks, kind, 700, IndexType::u32, type, Values::any_bits, 60, ++seed);
          ASSERT_NO_FATAL_FAILURE(trial.run(in, Op::sum, trial.even_cuts(700)));
          const Bytes dense = trial.dense(in);
          std::set<std::uint64_t> expected;
          for (const TestStream& s : in)
            expected.insert(s.indices.begin(), s.indices.end());
          const TestStream& result = trial.result();
          ASSERT_EQ(std::set<std::uint64_t>(result.indices.begin(), result.indices.end()), expected);
          for (std::size_t i = 0; i < result.indices.size(); ++i)
            ASSERT_TRUE(
                same_value(type, result.value(i), dense.data() + result.indices[i] * dtype_size(type)))
                << "index " << result.indices[i];
        }
      }
    }
  }
}

// Regions of any width, also empty ones; dimensions that no memory holds; min and max, to which an absent
// entry adds nothing.
TEST_P(StreamSchedules, ServesAnyRegionsDimensionsAndOperations) {
  std::uint64_t seed = 100;
  for (const int ranks : {2, 3, 5, 8}) {
    ScheduleWorld world(TopologyView::flat(ranks), delayed_world(ranks));
    for (const Shape& shape : GetParam().shapes(TopologyView::flat(ranks), 1 << 14)) {
      Trial trial(world, GetParam(), shape);
      for (const std::uint64_t dimension : {std::uint64_t{1}, std::uint64_t{300}, std::uint64_t{1} << 40}) {
        const Op op = std::vector{Op::sum, Op::min, Op::max}[++seed % 3];
        const DType type = std::vector{DType::i64, DType::f16, DType::bf16, DType::f64}[seed % 4];
        const std::vector<TestStream> in = streams_of(ranks, dimension > 300 ? 0 : 3, dimension,
                                                      IndexType::u64, type, Values::exact, 50, seed);
        SCOPED_TRACE(std::to_string(ranks) + " ranks, dimension " + std::to_string(dimension) + ", " +
                     op_name(op) + " of " + dtype_name(type));
        std::mt19937_64 random(seed);
        ASSERT_NO_FATAL_FAILURE(trial.run(in, op, trial.random_cuts(dimension, random)));
        std::map<std::uint64_t, Bytes> expected;
        const FoldFn fold = fold_kernel(type, op);
        for (const TestStream& s : in) {
          for (std::size_t i = 0; i < s.indices.size(); ++i) {
            const Bytes value(s.value(i), s.value(i) + dtype_size(type));
            const auto [at, added] = expected.try_emplace(s.indices[i], value);
            if (added) continue;
            const void* inputs[] = {at->second.data(), value.data()};
            fold(at->second.data(), nullptr, inputs, 2, 1);
          }
        }
        const TestStream& result = trial.result();
        ASSERT_EQ(result.indices.size(), expected.size());
        std::size_t i = 0;
        for (const auto& [index, value] : expected) {
          ASSERT_EQ(result.indices[i], index);
          ASSERT_TRUE(same_value(type, result.value(i++), value.data())) << "index " << index;
        }
      }
    }
  }
}

// Where the lender of messages is asked about one after the other, as MPI is: a later one may be through
// before an earlier one is asked about again.
TEST_P(StreamSchedules, ServesMessagesThatAreFoundDoneInAnyOrder) {
  LoopbackOptions delayed;
  delayed.max_delay = 7;
  std::uint64_t seed = 200;
  for (const int ranks : {2, 3, 5, 6}) {
    ScheduleWorld world(TopologyView::flat(ranks), std::make_unique<MpiWorld>(ranks, delayed));
    for (const Shape& shape : GetParam().shapes(TopologyView::flat(ranks), 1 << 20)) {
      Trial trial(world, GetParam(), shape);
      for (int round = 0; round < 3; ++round) {
        SCOPED_TRACE(std::to_string(ranks) + " ranks, chunks " + std::to_string(shape.chunks));
        const std::vector<TestStream> in =
            streams_of(ranks, 0, 100'000, IndexType::u32, DType::i64, Values::exact, 5000, ++seed);
        ASSERT_NO_FATAL_FAILURE(trial.run(in, Op::sum, trial.even_cuts(100'000)));
        const Bytes dense = trial.dense(in);
        const TestStream& result = trial.result();
        for (std::size_t i = 0; i < result.indices.size(); ++i)
          ASSERT_TRUE(same_value(DType::i64, result.value(i), dense.data() + result.indices[i] * 8))
              << "index " << result.indices[i];
      }
    }
  }
}

TEST(StreamExecution, UsesLanesThatLeaveRoomForSecondMessages) {
  for (const Algorithm& a : by_messages()) {
    for (const Step& step : a.build(TopologyView::flat(9), 3, {0, 2, 4}).steps)
      EXPECT_LT(step.lane, kStreamLanes) << a.name;
  }
}

// As where there is no memory for what it would have said.
TEST(StreamMessages, OneThatWasNeverSentIsGivenUp) {
  StreamMessage message;
  message.clear();
  message.cancel();
  EXPECT_FALSE(message.has_begun());
}

}  // namespace
}  // namespace heddle::test
