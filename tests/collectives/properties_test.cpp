// What the proofs do not say: that promises of rank order are neither false nor missing, that schedules stay
// small, and that every step of them is needed.
#include <gtest/gtest.h>

#include <set>

#include "cases.hpp"
#include "schedule/verifier.hpp"

namespace heddle::test {
namespace {

class Properties : public testing::TestWithParam<Algorithm> {
 protected:
  bool named(const char* name) const { return std::string(GetParam().name) == name; }
};

class FoldProperties : public Properties {};

bool are_runs(TeamKind kind, const TopologyView& topology) {
  for (std::int32_t rank = 1; rank < topology.size(); ++rank) {
    if (topology.team_of(kind, rank) < topology.team_of(kind, rank - 1)) return false;
  }
  return true;
}

TEST_P(FoldProperties, RankOrderIsPromisedExactlyWhereItHolds) {
  for (const std::int32_t size : {3, 5, 8, 11}) {
    for (const TopologyView& topology : topologies_of(GetParam(), size)) {
      for (const Shape& shape : shapes_of(GetParam(), size, {2, 3}, {1, 2, 3, 4})) {
        const bool promised = GetParam().build(topology, 0, shape).in_order;
        const Status status = verify(topology, [&](std::int32_t rank) {
          Schedule s = GetParam().build(topology, rank, shape);
          s.in_order = true;
          return s;
        });
        EXPECT_EQ(status.ok(), promised) << "size " << size << ", nodes " << topology.nodes() << ", chunks "
                                         << shape.chunks << ": " << status.message();
      }
    }
  }
}

TEST_P(FoldProperties, OnlyBlocksAndMixedNodesOrDomainsFoldOutOfOrder) {
  for (const TopologyView& topology : topologies_of(GetParam(), 7)) {
    const bool by_nodes =
        named("two_level") || named("leaders") || named("two_level_chain") ||
        (GetParam().collective == Collective::reduce && (named("knomial") || named("chain")));
    const bool expected =
        !named("ring") && (GetParam().collective != Collective::reduce || !named("double_binary_tree")) &&
        ((!named("two_level_ring") && !named("two_level_split")) || topology.nodes() == 1) &&
        !named("split_allgather") && !named("swing") && (!by_nodes || are_runs(TeamKind::node, topology)) &&
        (!named("multi_leader") || are_runs(TeamKind::domain, topology));
    EXPECT_EQ(GetParam().build(topology, 0, Shape{}).in_order, expected);
  }
}

// Every message, fold, copy and team verb left out of one rank's schedule is noticed.
TEST_P(Properties, EveryStepIsNeeded) {
  constexpr std::int32_t kSize = 6;
  for (const TopologyView& topology : topologies_of(GetParam(), kSize)) {
    for (const Shape& shape : shapes_of(GetParam(), kSize, {2, 3}, {1, 3})) {
      for (std::int32_t victim = 0; victim < kSize; ++victim) {
        const Schedule whole = GetParam().build(topology, victim, shape);
        for (std::size_t i = 0; i < whole.steps.size(); ++i) {
          const StepKind kind = whole.steps[i].kind;
          if (kind == StepKind::wait || kind == StepKind::repeat) continue;
          const Status status = verify(topology, [&](std::int32_t rank) {
            Schedule s = GetParam().build(topology, rank, shape);
            // A wait that lets everything stay open: the step does nothing.
            if (rank == victim)
              s.steps[i] = {StepKind::wait, Slot::data, Slot::data, 0, 0, 0, 0, UINT32_MAX, 0};
            return s;
          });
          EXPECT_FALSE(status.ok()) << "rank " << victim << " without step " << i;
        }
      }
    }
  }
}

TEST_P(Properties, StepsDoNotGrowWithPieces) {
  for (const std::int32_t size : {2, 16, 100}) {
    for (const TopologyView& topology : topologies_of(GetParam(), size)) {
      for (const std::int32_t rank : {0, 1, size / 2, size - 1}) {
        const auto steps = [&](std::uint32_t chunks) {
          return GetParam().build(topology, rank, {0, 2, chunks}).steps.size();
        };
        // As many more as every number of rounds divides: phases of a circulant graph begin in the same
        // round.
        EXPECT_EQ(steps(1000), steps(1000 + 5040)) << "size " << size << " rank " << rank;
      }
    }
  }
}

TEST_P(Properties, SchedulesOfLargeMachinesAreSmall) {
  constexpr std::int32_t kSize = 4096;
  constexpr std::size_t kLinearSteps = 30;        // ring, chain, scatter-allgather: whatever the size
  constexpr std::size_t kLogarithmicSteps = 200;  // the others
  constexpr std::size_t kThreefoldSteps = 400;    // a prologue, a body and an epilogue of such
  const bool linear = named("ring") || named("chain") || named("scatter_allgather") || named("team");
  const TopologyView topology = GetParam().needs_domains ? domains_of(blocks(kSize, 8))
                                : GetParam().by_nodes    ? blocks(kSize, 8)
                                : GetParam().needs_team  ? TopologyView::one_node(kSize)
                                                         : TopologyView::flat(kSize);
  const std::size_t most = linear ? kLinearSteps : named("two_level") ? kThreefoldSteps : kLogarithmicSteps;
  for (const std::uint32_t chunks : {1U, 2U, 3U, 4U, 64U}) {
    for (const std::uint32_t leaders : {1U, 8U}) {
      for (const std::int32_t rank : {0, 1, 2, 3, 8, 24, 1023, 2047, 2048, 3000, 4088, 4095}) {
        const Schedule s = GetParam().build(topology, rank, {0, 4, chunks, leaders});
        EXPECT_LE(s.steps.size(), most) << "rank " << rank << " chunks " << chunks << " leaders " << leaders;
        EXPECT_LE(s.max_open, 64U) << "rank " << rank << " chunks " << chunks << " leaders " << leaders;
      }
    }
  }
}

// A tuning file may ask for any number of pieces: chunk numbers must still fit.
TEST_P(Properties, AbsurdNumbersOfPiecesStayInRange) {
  for (const TopologyView& topology : topologies_of(GetParam(), 9)) {
    const Schedule s = GetParam().build(topology, 8, {0, 2, UINT32_MAX, UINT32_MAX});
    EXPECT_GE(s.chunks, 1U);
    EXPECT_LE(s.chunks, 1U << 30);
    EXPECT_LE(s.steps.size(), 200U);
  }
}

INSTANTIATE_TEST_SUITE_P(Catalog, FoldProperties, testing::ValuesIn(folding_algorithms()),
                         [](const auto& param) { return case_name(param.param); });
INSTANTIATE_TEST_SUITE_P(Catalog, Properties, testing::ValuesIn(algorithms()),
                         [](const auto& param) { return case_name(param.param); });

// Full bandwidth rests on this: nobody receives from below or sends below in both trees.
TEST(DoubleBinaryTree, NobodyIsAnInnerNodeOfBoth) {
  for (const Collective collective : {Collective::allreduce, Collective::bcast, Collective::reduce}) {
    const bool bcast = collective == Collective::bcast;
    const bool allreduce = collective == Collective::allreduce;
    const Algorithm& algorithm = *find_algorithm(collective, "double_binary_tree");
    for (std::int32_t size = 2; size <= 300; ++size) {
      const TopologyView topology = TopologyView::flat(size);
      for (std::int32_t rank = allreduce ? 0 : 1; rank < size; ++rank) {
        std::set<int> lanes;
        for (const Step& step : algorithm.build(topology, rank, Shape{}).steps) {
          const bool below =
              bcast ? step.kind == StepKind::send : step.kind == StepKind::recv && step.dst == Slot::scratch;
          if (below) lanes.insert(step.lane);
        }
        ASSERT_LE(lanes.size(), 1U) << "size " << size << " rank " << rank;
      }
    }
  }
}

TEST(Catalog, NamesAreFoundAndUnique) {
  std::set<std::string> names;
  for (const Algorithm& algorithm : catalog()) {
    EXPECT_TRUE(names.insert(case_name(algorithm)).second) << case_name(algorithm);
    EXPECT_EQ(find_algorithm(algorithm.collective, algorithm.name), &algorithm);
  }
  EXPECT_EQ(find_algorithm(Collective::allreduce, "chain"), nullptr);
  EXPECT_EQ(find_algorithm(Collective::bcast, ""), nullptr);
}

}  // namespace
}  // namespace heddle::test
