// As mutation_test.cpp, of every algorithm in the catalog: on random topologies and in random shapes, damaged
// at random. Fewer of each, and more of what the samples have not: pipelines, algorithms within others,
// several leaders, mixed radices.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "interpreter.hpp"
#include "mutants.hpp"
#include "sample_algorithms.hpp"
#include "schedule/dump.hpp"
#include "schedule/verifier.hpp"
#include "select/catalog.hpp"

namespace heddle::test {
namespace {

constexpr int kWorlds = 10;     // of each algorithm
constexpr int kMutants = 100;   // in each
constexpr int kTrialsEach = 8;  // of each that is accepted
constexpr int kMostRanks = 7;   // the schedules of all are verified anew for each mutant

class Damage {
 public:
  explicit Damage(unsigned seed) : random_(seed) {}

  int pick(int least, int most) {
    return least + static_cast<int>(random_() % static_cast<unsigned>(most - least + 1));
  }

  // Each rank on its own node, or nodes in blocks, in turn, or anyhow.
  TopologyView topology(const Algorithm& algorithm) {
    const int size = pick(2, kMostRanks);
    if (algorithm.needs_team && !algorithm.needs_messages && !algorithm.needs_domains)
      return TopologyView::one_node(size);
    const int nodes = pick(1, size);
    const int way = pick(0, 3);
    std::vector<std::int32_t> node_of;
    std::vector<std::int32_t> numbers(static_cast<std::size_t>(size), -1);
    std::int32_t known = 0;
    for (int rank = 0; rank < size; ++rank) {
      const int node = way == 0   ? rank
                       : way == 1 ? rank * nodes / size
                       : way == 2 ? rank % nodes
                                  : pick(0, nodes - 1);
      std::int32_t& number = numbers[static_cast<std::size_t>(node)];
      if (number < 0) number = known++;
      node_of.push_back(number);
    }
    return algorithm.needs_domains ? TopologyView::of_domains(node_of) : TopologyView({node_of});
  }

  Shape shape(const Algorithm& algorithm, const TopologyView& topology) {
    Shape shape;
    shape.radix = pick(2, 4);
    shape.chunks = static_cast<std::uint32_t>(pick(1, 6));
    shape.leaders = static_cast<std::uint32_t>(pick(1, 3));
    if (has_root(algorithm.collective)) shape.root = pick(0, topology.size() - 1);
    return shape;
  }

  // One field of one step, of one rank or, now and then, of all alike; twice sometimes.
  void damage(std::vector<Schedule>& schedules) {
    const bool all = pick(0, 4) == 0;
    const auto who = static_cast<std::size_t>(pick(0, static_cast<int>(schedules.size()) - 1));
    for (int times = pick(1, 2); times > 0; --times) {
      const int field = pick(0, 9);
      const int by = pick(-2, 2);
      const int value = pick(0, 8);
      const std::size_t place = random_();
      for (std::size_t rank = 0; rank < schedules.size(); ++rank) {
        if (all || rank == who) change(schedules[rank].steps, place, field, by, value);
      }
    }
  }

 private:
  static void change(std::vector<Step>& steps, std::size_t place, int field, int by, int value) {
    if (steps.empty()) return;
    Step& step = steps[place % steps.size()];
    Step& next = steps[(place + 1) % steps.size()];
    const auto bits = static_cast<std::uint32_t>(by);
    switch (field) {
      case 0:
        step.kind = static_cast<StepKind>(value);
        break;
      case 1:
        step.dst = static_cast<Slot>(value % 3);
        break;
      case 2:
        step.src = static_cast<Slot>(value % 3);
        break;
      case 3:
        step.flags = (step.flags ^ (1U << (value % 3))) & 0xf;
        break;
      case 4:
        step.lane = (step.lane + static_cast<unsigned>(value)) & 0xf;
        break;
      case 5:
        if (step.kind != StepKind::repeat) step.count += bits;
        break;
      case 6:
        step.peer += by;
        break;
      case 7:
        step.chunk += bits;
        break;
      case 8:
        step.unit += bits;
        break;
      default:
        if (step.kind != StepKind::repeat && next.kind != StepKind::repeat) std::swap(step, next);
    }
    constexpr std::uint32_t kMostRounds = 200;
    if (step.kind == StepKind::repeat && step.count > kMostRounds) step.count = 3;
  }

  std::mt19937 random_;
};

class CatalogMutants : public ::testing::TestWithParam<std::size_t> {
 protected:
  // What is accepted computes the right result, also while messages are late.
  static std::string run(const TopologyView& topology, const std::vector<Schedule>& schedules) {
    for (std::uint64_t seed = 0; seed < kTrialsEach; ++seed) {
      std::string wrong = run_on_numbers(topology, schedules, {seed, seed % 2 == 0, seed % 3 == 0});
      if (!wrong.empty()) return wrong + " (seed " + std::to_string(seed) + ")";
    }
    return "";
  }
};

TEST_P(CatalogMutants, AcceptedOnesStillComputeTheRightResult) {
  const Algorithm& algorithm = catalog()[GetParam()];
  Damage damage(static_cast<unsigned>(GetParam()));
  int rejected = 0;
  int accepted = 0;
  for (int world = 0; world < kWorlds; ++world) {
    const TopologyView topology = damage.topology(algorithm);
    const Shape shape = damage.shape(algorithm, topology);
    std::vector<Schedule> whole;
    for (std::int32_t rank = 0; rank < topology.size(); ++rank)
      whole.push_back(algorithm.build(topology, rank, shape));
    ASSERT_EQ(verify(topology, schedule_of(whole)).message(), "");
    ASSERT_EQ(run(topology, whole), "");
    for (int number = 0; number < kMutants; ++number) {
      std::vector<Schedule> mutant = whole;
      damage.damage(mutant);
      for (Schedule& s : mutant)
        recount_open(s);
      if (!verify(topology, schedule_of(mutant)).ok()) {
        ++rejected;
        continue;
      }
      ++accepted;
      std::string text;
      for (const Schedule& s : mutant)
        text += dump(s);
      ASSERT_EQ(run(topology, mutant), "") << "accepted: mutant " << number << " of world " << world << "\n"
                                           << text;
    }
  }
  EXPECT_GT(rejected, accepted / 8);
  RecordProperty("rejected", rejected);
  RecordProperty("accepted", accepted);
}

INSTANTIATE_TEST_SUITE_P(All, CatalogMutants, ::testing::Range(std::size_t{0}, catalog().size()),
                         [](const auto& instance) {
                           const Algorithm& a = catalog()[instance.param];
                           return std::to_string(static_cast<int>(a.collective)) + "_" + a.name;
                         });

}  // namespace
}  // namespace heddle::test
