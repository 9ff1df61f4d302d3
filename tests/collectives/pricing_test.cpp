// The pricer counts iterations of rings and chains that it does not run: as if it had run them, for what the catalog has.
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "cases.hpp"
#include "schedule/long_repeats.hpp"
#include "schedule/priced_run.hpp"
#include "select/selector.hpp"

namespace heddle::test {
namespace {

constexpr double kAlike = 0.01;  // of prices within 3% another one may be chosen anyhow

TEST(Pricing, OfCountedIterationsIsThatOfAll) {
  const CostModel model = default_cost_model({500, 0.1}, {1400, 0.08, 200}, false);
  const Preferences nothing;
  std::set<std::string> counted;
  for (const TopologyView& topology :
       {TopologyView::flat(40), blocks(24, 4), blocks(22, 4), round_robin(24, 6), growing(21),
        scattered(24, 7), blocks(64, 16), TopologyView::one_node(36)}) {
    const Selector selector(topology, model, {true, true}, nothing);
    for (const Collective collective : {Collective::allreduce, Collective::bcast}) {
      for (const std::size_t bytes : {std::size_t{48} << 10, std::size_t{24} << 20}) {
        for (const Choice& c : selector.candidates(collective, bytes, false)) {
          const auto schedule_of = [&](std::int32_t rank) {
            return c.algorithm->build(topology, rank, c.shape);
          };
          std::vector<Schedule> all;
          for (std::int32_t rank = 0; rank < topology.size(); ++rank)
            all.push_back(schedule_of(rank));
          const double exact_ns = PricedRun(topology, all, bytes, nullptr, model)
                                      .finish_ns(std::numeric_limits<double>::infinity());
          EXPECT_NEAR(price(topology, schedule_of, bytes, model), exact_ns, exact_ns * kAlike)
              << case_name(*c.algorithm) << ' ' << topology.nodes() << " nodes, " << bytes << " bytes, "
              << c.shape.chunks << " pieces, " << c.shape.leaders << " leaders";
          if (LongRepeats(topology, all).iterations() > 40) counted.insert(case_name(*c.algorithm));
        }
      }
    }
  }
  for (const char* name : {"allreduce_ring", "bcast_chain", "bcast_two_level_chain"})
    EXPECT_EQ(counted.count(name), 1U) << name;
}

}  // namespace
}  // namespace heddle::test
