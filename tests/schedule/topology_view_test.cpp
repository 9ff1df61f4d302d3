#include "schedule/topology_view.hpp"

#include <gtest/gtest.h>

#include <algorithm>
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

TEST(TopologyView, WithoutDomainsANodeIsOne) {
  const TopologyView view = TopologyView::uniform(2, 3);
  EXPECT_FALSE(view.has_domains());
  for (std::int32_t rank = 0; rank < 6; ++rank) {
    EXPECT_EQ(view.domains(rank), 1);
    EXPECT_EQ(view.leaders(rank), 3);
    EXPECT_EQ(view.team(TeamKind::domain, rank), view.members(view.node_of(rank)));
    EXPECT_EQ(view.team(TeamKind::peers, rank), Ranks{rank});
  }
}

TEST(TopologyView, PeersHaveTheSamePlaceInEveryDomain) {
  const TopologyView view = TopologyView::of_domains({0, 1, 0, 1, 1, 2, 2});
  EXPECT_EQ(view.nodes(), 1);
  EXPECT_TRUE(view.has_domains());
  EXPECT_EQ(view.domains(4), 3);
  EXPECT_EQ(view.leaders(4), 2);
  EXPECT_EQ(view.team(TeamKind::node, 3), (Ranks{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(view.team(TeamKind::domain, 3), (Ranks{1, 3, 4}));
  EXPECT_EQ(view.member_of(TeamKind::domain, 3), 1);
  EXPECT_EQ(view.team(TeamKind::peers, 3), (Ranks{2, 3, 6}));
  EXPECT_EQ(view.member_of(TeamKind::peers, 6), 2);
  EXPECT_EQ(view.team(TeamKind::peers, 4), Ranks{4}) << "no other domain has a third rank";
}

TEST(TopologyView, EveryRankSitsInEachOfItsTeams) {
  const TopologyView view({{0, 0, 1, 1, 1, 0, 1}}, {0, 1, 2, 2, 3, 1, 3});
  std::vector<bool> seen(static_cast<std::size_t>(view.teams()), false);
  for (std::int32_t rank = 0; rank < view.size(); ++rank) {
    for (const TeamKind kind : {TeamKind::node, TeamKind::domain, TeamKind::peers}) {
      const auto place = static_cast<std::size_t>(view.member_of(kind, rank));
      EXPECT_EQ(view.team(kind, rank)[place], rank);
      seen[static_cast<std::size_t>(view.team_of(kind, rank))] = true;
    }
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), view.teams()) << "a team without members";
  EXPECT_EQ(view.leaders(0), 1);
  EXPECT_EQ(view.leaders(4), 2);
}

}  // namespace
}  // namespace heddle
