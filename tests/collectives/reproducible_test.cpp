// HEDDLE_REPRODUCIBLE: whatever is chosen, an element is folded in one way.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "../schedule/interpreter.hpp"
#include "cases.hpp"
#include "select/selector.hpp"

namespace heddle::test {
namespace {

std::vector<Schedule> built(const TopologyView& topology, const Choice& choice) {
  std::vector<Schedule> schedules;
  for (std::int32_t rank = 0; rank < topology.size(); ++rank)
    schedules.push_back(choice.algorithm->build(topology, rank, choice.shape));
  return schedules;
}

std::vector<TopologyView> placements_of(std::int32_t size) {
  return {TopologyView::flat(size),
          TopologyView::uniform(1, size),
          blocks(size, 2),
          blocks(size, 3),
          growing(size),
          round_robin(size, std::min(3, size)),
          scattered(size, 1),
          domains_of(blocks(size, 2))};
}

struct Offer {
  std::set<std::uint64_t> folds;
  std::set<std::string> names;    // of allreduces
  std::set<std::string> reduces;  // of reduces
  std::size_t choices = 0;
};

// What is offered for short and long vectors, blocking calls and requests.
Offer offered(const TopologyView& topology, bool reproducible, bool team = true) {
  Preferences preferences;
  preferences.reproducible = reproducible;
  const Selector selector(topology, default_cost_model({200, 0.1}, {1000, 1}, topology.has_domains()),
                          {team, true}, preferences);
  Offer offer;
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{100'000}, std::size_t{64} << 20}) {
    for (const bool messages_only : {false, true}) {
      // Requests on one node are the team's as well.
      if (messages_only && team && topology.nodes() == 1) continue;
      for (const Collective collective : {Collective::allreduce, Collective::reduce}) {
        for (Choice& choice : selector.candidates(collective, bytes, messages_only)) {
          for (const std::int32_t root : {0, topology.size() / 2, topology.size() - 1}) {
            choice.shape.root = root;
            const std::vector<std::uint64_t> folds = folds_of(topology, built(topology, choice));
            offer.folds.insert(folds.begin(), folds.end());
            if (collective == Collective::allreduce) break;
          }
          (collective == Collective::reduce ? offer.reduces : offer.names).insert(choice.algorithm->name);
          ++offer.choices;
        }
      }
    }
  }
  return offer;
}

TEST(Reproducible, AllThatIsOfferedFoldsEveryElementAlike) {
  for (const std::int32_t size : {1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 16, 17, 24}) {
    for (const TopologyView& topology : placements_of(size)) {
      for (const bool team : {true, false}) {
        const Offer offer = offered(topology, true, team);
        EXPECT_EQ(offer.folds.size(), 1U) << size << " ranks on " << topology.nodes() << " nodes";
        EXPECT_GE(offer.choices, 6U);
      }
    }
  }
}

// So the test above can fail.
TEST(Reproducible, AllElseFoldsInSeveralWays) {
  EXPECT_GT(offered(TopologyView::flat(6), false).folds.size(), 3U);
  EXPECT_GT(offered(blocks(6, 2), false).folds.size(), 3U);
  EXPECT_GT(offered(TopologyView::uniform(1, 6), false).folds.size(), 3U);
}

TEST(Reproducible, ShortAndLongVectorsHaveAlgorithmsOfTheirOwn) {
  using Names = std::set<std::string>;
  EXPECT_EQ(offered(TopologyView::uniform(1, 6), true).names, Names{"team"});
  EXPECT_EQ(offered(TopologyView::flat(6), true).names, (Names{"recursive_doubling", "rabenseifner"}));
  EXPECT_EQ(offered(blocks(6, 2), true).names, (Names{"two_level", "leaders"}));
  EXPECT_EQ(offered(TopologyView::uniform(1, 6), true).reduces, Names{"team"});
  EXPECT_EQ(offered(TopologyView::flat(6), true).reduces, (Names{"binomial", "rabenseifner"}));
  EXPECT_EQ(offered(blocks(6, 2), true).reduces, (Names{"two_level", "leaders"}));
}

}  // namespace
}  // namespace heddle::test
