// The plans of a communicator: what they keep while the roots of bcasts change.
#include "comm/plan_cache.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

namespace heddle::test {
namespace {

class Plans {
 public:
  explicit Plans(std::int32_t ranks) : topology_(TopologyView::flat(ranks)) {}

  std::shared_ptr<const Schedule> allreduce() {
    return plans_.schedule({find_algorithm(Collective::allreduce, "recursive_doubling"), {0, 2, 1}}, 0);
  }
  std::shared_ptr<const Schedule> bcast(std::int32_t root) {
    return plans_.schedule({find_algorithm(Collective::bcast, "binomial"), {0, 2, 1}}, root);
  }

 private:
  const TopologyView topology_;
  const Preferences nothing_;
  const Log quiet_{LogLevel::none};
  const Selector selector_{
      topology_, default_cost_model({500, 0.1}, {1400, 0.08, 200}, false), {false, true}, nothing_};
  PlanCache plans_{topology_, 1, selector_, quiet_};
};

TEST(PlanCache, KeepsWhatIsUsedWhileTheRootsOfBcastsChange) {
  Plans plans(1000);
  const std::shared_ptr<const Schedule> kept = plans.allreduce();
  for (std::int32_t root = 0; root < 1000; ++root) {
    plans.bcast(root);
    ASSERT_EQ(plans.allreduce(), kept) << root;
  }
}

TEST(PlanCache, KeepsAsManyAsItHasRoomFor) {
  constexpr std::int32_t kRoots = 256;
  Plans plans(kRoots);
  std::vector<std::shared_ptr<const Schedule>> first;
  for (std::int32_t root = 0; root < kRoots; ++root)
    first.push_back(plans.bcast(root));
  for (std::int32_t root = 0; root < kRoots; ++root)
    ASSERT_EQ(plans.bcast(root), first[static_cast<std::size_t>(root)]) << root;
}

// Of 1,000 roots most have to go: nobody but the caller keeps them.
TEST(PlanCache, KeepsNoMoreThanThat) {
  Plans plans(1000);
  std::vector<std::weak_ptr<const Schedule>> built;
  for (std::int32_t root = 0; root < 1000; ++root)
    built.push_back(plans.bcast(root));
  EXPECT_EQ(std::count_if(built.begin(), built.end(), [](const auto& each) { return !each.expired(); }), 256);
}

// Nodes like ranks, of which each is in this place's ranks' stead.
TEST(PlanCache, NamesPeersInsteadOfRanks) {
  const TopologyView nodes = TopologyView::flat(3);
  const Preferences nothing;
  const Log quiet{LogLevel::none};
  const Selector selector(nodes, default_cost_model({500, 0.1}, {1400, 0.08, 200}, false), {false, true},
                          nothing);
  PlanCache plans(nodes, 0, selector, quiet, {5, 9, 13});
  const Result<const Selection*> chosen = plans.selection(Collective::bcast, 8, true);
  ASSERT_TRUE(chosen.ok());
  std::vector<std::int32_t> receivers;
  for (const Step& step : plans.schedule(chosen.value()->choice, 0)->steps) {
    if (step.kind == StepKind::send) receivers.push_back(step.peer);
  }
  std::ranges::sort(receivers);
  EXPECT_EQ(receivers, (std::vector{9, 13}));
}

}  // namespace
}  // namespace heddle::test
