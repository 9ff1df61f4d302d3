// What the pricer leaves out, of everything that the catalog has: iterations that it counts, and runs that it
// gives up.
#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>
#include <vector>

#include "cases.hpp"
#include "schedule/long_repeats.hpp"
#include "schedule/priced_run.hpp"
#include "select/selector.hpp"

namespace heddle::test {
namespace {

constexpr double kToTheEnd = std::numeric_limits<double>::infinity();
constexpr double kAlike = 0.01;  // of prices within 3% another one may be chosen anyhow

std::vector<TopologyView> machines() {
  return {TopologyView::flat(40),
          blocks(24, 4),
          blocks(22, 4),
          round_robin(24, 6),
          growing(21),
          scattered(24, 7),
          blocks(64, 16),
          TopologyView::one_node(36)};
}

// For every candidate on these, with all of its ranks' schedules.
template <typename Check>
void for_each_candidate(const CostModel& model, Check check) {
  const Preferences nothing;
  for (const TopologyView& topology : machines()) {
    const Selector selector(topology, model, {true, true}, nothing);
    for (const Collective collective : kChosenCollectives) {
      for (const std::size_t bytes : {std::size_t{48} << 10, std::size_t{24} << 20}) {
        for (const Choice& c : selector.candidates(collective, bytes, false)) {
          SCOPED_TRACE(case_name(*c.algorithm) + ", " + std::to_string(topology.nodes()) + " nodes, " +
                       std::to_string(bytes) + " bytes, radix " + std::to_string(c.shape.radix) + ", " +
                       std::to_string(c.shape.chunks) + " pieces, " + std::to_string(c.shape.leaders) +
                       " leaders");
          std::vector<Schedule> all;
          for (std::int32_t rank = 0; rank < topology.size(); ++rank)
            all.push_back(c.algorithm->build(topology, rank, c.shape));
          check(*c.algorithm, topology, all, bytes);
        }
      }
    }
  }
}

TEST(Pricing, OfCountedIterationsIsThatOfAll) {
  const CostModel model = default_cost_model({500, 0.1}, {1400, 0.08, 200}, false);
  std::set<std::string> counted;
  for_each_candidate(model, [&](const Algorithm& algorithm, const TopologyView& topology,
                                std::vector<Schedule>& all, std::size_t bytes) {
    const double exact_ns = PricedRun(topology, all, bytes, nullptr, model).finish_ns(kToTheEnd);
    const auto schedule_of = [&](std::int32_t rank) { return all[static_cast<std::size_t>(rank)]; };
    EXPECT_NEAR(price(topology, schedule_of, bytes, model), exact_ns, exact_ns * kAlike);
    if (LongRepeats(topology, all).iterations() > 40) counted.insert(case_name(algorithm));
  });
  for (const char* name : {"allreduce_ring", "bcast_chain", "bcast_two_level_chain"})
    EXPECT_EQ(counted.count(name), 1U) << name;
}

// What messages still have to hold of links is no more than the time to come.
TEST(Pricing, GivesUpOnNothingThatIsCheapEnough) {
  const CostModel model = default_cost_model({500, 0.1}, {1400, 0.08, 200, 700}, false);
  for_each_candidate(model, [&](const Algorithm&, const TopologyView& topology,
                                const std::vector<Schedule>& all, std::size_t bytes) {
    const auto price_up_to = [&](double give_up_ns) {
      return PricedRun(topology, all, bytes, nullptr, model).finish_ns(give_up_ns);
    };
    const double exact_ns = price_up_to(kToTheEnd);
    EXPECT_EQ(price_up_to(exact_ns), exact_ns);
    for (const double part : {0.3, 0.9, 0.999}) {
      const double got_ns = price_up_to(exact_ns * part);
      EXPECT_GT(got_ns, exact_ns * part);
      EXPECT_LE(got_ns, exact_ns * (1 + 1e-9));
    }
  });
}

}  // namespace
}  // namespace heddle::test
