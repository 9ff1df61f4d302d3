#include "schedule/topology_view.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace heddle {
namespace {

using Ranks = std::vector<std::int32_t>;

TEST(TopologyView, FlatPutsEveryRankOnItsOwnNode) {
  const TopologyView view = TopologyView::flat(3);
  EXPECT_EQ(view.size(), 3);
  EXPECT_EQ(view.nodes(), 3);
  for (std::int32_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(view.node_of(rank), rank);
    EXPECT_EQ(view.member_index(rank), 0);
    EXPECT_EQ(view.members(rank), Ranks{rank});
  }
}

TEST(TopologyView, OneNodeHasAllRanks) {
  const TopologyView view = TopologyView::one_node(4);
  EXPECT_EQ(view.nodes(), 1);
  EXPECT_EQ(view.members(0), (Ranks{0, 1, 2, 3}));
  EXPECT_EQ(view.member_index(3), 3);
}

TEST(TopologyView, UniformPlacesBlocks) {
  const TopologyView view = TopologyView::uniform(2, 3);
  EXPECT_EQ(view.size(), 6);
  EXPECT_EQ(view.levels(), 1);
  EXPECT_EQ(view.members(0), (Ranks{0, 1, 2}));
  EXPECT_EQ(view.members(1), (Ranks{3, 4, 5}));
  EXPECT_EQ(view.member_index(4), 1);
}

TEST(TopologyView, NodesNeedNotHaveConsecutiveRanks) {
  const TopologyView view({{0, 1, 0, 2, 1, 0}});
  EXPECT_EQ(view.nodes(), 3);
  EXPECT_EQ(view.members(0), (Ranks{0, 2, 5}));
  EXPECT_EQ(view.members(1), (Ranks{1, 4}));
  EXPECT_EQ(view.members(2), Ranks{3});
  EXPECT_EQ(view.member_index(5), 2);
  EXPECT_EQ(view.member_index(4), 1);
  EXPECT_EQ(view.node_of(4), 1);
}

TEST(TopologyView, CoarserLevelsKeepTheirGroups) {
  const TopologyView view({{0, 0, 1, 1, 2}, {0, 0, 0, 0, 1}});
  EXPECT_EQ(view.levels(), 2);
  EXPECT_EQ(view.nodes(), 3);
  EXPECT_EQ(view.group_of(0, 3), 1);
  EXPECT_EQ(view.group_of(1, 3), 0);
  EXPECT_EQ(view.group_of(1, 4), 1);
}

}  // namespace
}  // namespace heddle
