// What algorithms for many hosts are for: how much crosses from node to node, how far, in how many rounds,
// and that node phases run while messages are under way.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>

#include "cases.hpp"
#include "schedule/cursor.hpp"
#include "schedule/pricer.hpp"
#include "schedule/split.hpp"
#include "select/selector.hpp"

namespace heddle::test {
namespace {

constexpr std::size_t kBytes = 1 << 20;

struct Traffic {
  std::map<std::int32_t, std::size_t> out;  // by node: bytes that leave it
  std::map<std::int32_t, std::size_t> in;
  std::size_t hops = 0;      // byte times distance around the ring of ranks
  std::size_t farthest = 0;  // distance
  std::uint32_t most_open = 0;

  std::size_t most() const {
    std::size_t most = 0;
    for (const auto& side : {out, in})
      for (const auto& [node, bytes] : side)
        most = std::max(most, bytes);
    return most;
  }
};

Traffic traffic(const Algorithm& algorithm, const TopologyView& topology, const Shape& shape) {
  Traffic t;
  for (std::int32_t rank = 0; rank < topology.size(); ++rank) {
    const Schedule schedule = algorithm.build(topology, rank, shape);
    const Split split(kBytes, schedule.chunks);
    t.most_open = std::max(t.most_open, schedule.max_open);
    for (Cursor at(schedule); !at.done(); at.advance()) {
      const Step& step = at.step();
      if (step.kind != StepKind::send) continue;
      const std::size_t bytes = split.length(at.chunk(), step.count);
      const std::int32_t apart = std::abs(step.peer - rank);
      const auto distance = static_cast<std::size_t>(std::min(apart, topology.size() - apart));
      t.hops += bytes * distance;
      t.farthest = std::max(t.farthest, distance);
      if (topology.node_of(rank) == topology.node_of(step.peer)) continue;
      t.out[topology.node_of(rank)] += bytes;
      t.in[topology.node_of(step.peer)] += bytes;
    }
  }
  return t;
}

const Algorithm& allreduce_named(const char* name) {
  return *find_algorithm(Collective::allreduce, name);
}
const Algorithm& bcast_named(const char* name) {
  return *find_algorithm(Collective::bcast, name);
}

const Algorithm& allgather_named(const char* name) {
  return *find_algorithm(Collective::allgather, name);
}

std::vector<TopologyView> placements() {
  return {blocks(24, 4), blocks(22, 4),    round_robin(24, 6),
          growing(21),   scattered(24, 7), TopologyView::flat(6)};
}

// Least possible but for the rounding of blocks: every node sends and receives 2n(m-1)/m.
TEST(HostLinks, RingsCarryTheVectorOnceEachWay) {
  for (const TopologyView& topology : placements()) {
    for (const std::uint32_t chunks : {1U, 4U}) {
      const std::size_t flat = traffic(allreduce_named("ring"), topology, {0, 2, chunks}).most();
      EXPECT_LE(flat, 2 * kBytes);
      for (const std::uint32_t leaders : {1U, 2U, 4U}) {
        const std::size_t nodes =
            traffic(allreduce_named("two_level_ring"), topology, {0, 2, chunks, leaders}).most();
        const auto m = static_cast<std::size_t>(topology.nodes());
        EXPECT_LE(nodes, 2 * kBytes * (m - 1) / m + 64 * m) << topology.nodes() << " nodes";
      }
    }
  }
}

// What the other nodes' ranks have, and over the ring of ranks no more than what all have.
TEST(HostLinks, AnAllgatherEntersEveryNodeOnce) {
  for (const TopologyView& topology : placements())
    EXPECT_LE(traffic(allgather_named("ring"), topology, {}).most(), kBytes);
  for (const TopologyView& topology : {blocks(24, 4), blocks(22, 4), growing(21)}) {
    for (const char* name : {"two_level", "two_level_ring"}) {
      const bool alike = topology.size() == 24;
      if (!alike && name != std::string("two_level")) continue;  // it is the ring then
      for (const auto& [node, bytes] : traffic(allgather_named(name), topology, {0, 2}).in) {
        const auto others = static_cast<std::size_t>(topology.size()) - topology.members(node).size();
        const std::size_t wanted = kBytes * others / static_cast<std::size_t>(topology.size());
        EXPECT_NEAR(static_cast<double>(bytes), static_cast<double>(wanted), 64) << name << ", node " << node;
      }
    }
  }
}

// As one rank a node would: for a power of two of nodes.
TEST(HostLinks, LeadersShareWhatOneWouldSend) {
  for (const std::int32_t per_node : {1, 2, 3, 8}) {
    const TopologyView topology = blocks(8 * per_node, per_node);
    for (const std::uint32_t chunks : {1U, 2U, 5U}) {
      const std::size_t one = traffic(allreduce_named("two_level"), topology, {0, 2, chunks, 1}).most();
      EXPECT_LE(one, chunks == 1 ? 3 * kBytes : 2 * kBytes);
      for (const std::uint32_t leaders : {2U, 3U, 8U}) {
        const std::size_t several =
            traffic(allreduce_named("two_level"), topology, {0, 2, chunks, leaders}).most();
        EXPECT_NEAR(static_cast<double>(several), static_cast<double>(one), 512);
      }
    }
  }
}

TEST(HostLinks, ABcastEntersEveryNodeOnce) {
  for (const TopologyView& topology : placements()) {
    for (const std::int32_t root : {0, 5, topology.size() - 1}) {
      if (root >= topology.size()) continue;
      for (const std::uint32_t leaders : {1U, 2U}) {
        for (const char* name : {"chain", "two_level_chain", "two_level"}) {
          for (const std::uint32_t chunks : {1U, 6U}) {
            const Traffic t = traffic(bcast_named(name), topology, {root, 2, chunks, leaders});
            for (const auto& [node, bytes] : t.in)
              EXPECT_EQ(bytes, kBytes) << name << ", node " << node;
            EXPECT_EQ(t.in.count(topology.node_of(root)), 0U) << name;
            if (std::string(name) != "two_level") {
              EXPECT_LE(t.most(), kBytes) << name;
            }
          }
        }
      }
    }
  }
}

// The reaches are 1, 1, 3, 5, 11, 21, 43, 85 instead of 1, 2, 4, ..., 128.
TEST(Swing, GoesTwoThirdsAsFar) {
  const TopologyView topology = TopologyView::flat(256);
  const Traffic doubling = traffic(allreduce_named("recursive_doubling"), topology, {});
  const Traffic whole = traffic(allreduce_named("swing"), topology, {});
  EXPECT_EQ(whole.hops * 255, doubling.hops * 170);
  EXPECT_EQ(whole.farthest, 85U);
  EXPECT_EQ(doubling.farthest, 128U);
  const Traffic halves = traffic(allreduce_named("rabenseifner"), topology, {});
  const Traffic swung = traffic(allreduce_named("swing"), topology, {0, 2, 2});
  EXPECT_LT(swung.hops, halves.hops * 4 / 5);
  EXPECT_EQ(swung.most(), halves.most());
}

TEST(Bine, GoesTwoThirdsAsFar) {
  const TopologyView topology = TopologyView::flat(256);
  for (const std::int32_t root : {0, 77}) {
    const Traffic binomial = traffic(bcast_named("binomial"), topology, {root});
    const Traffic bine = traffic(bcast_named("bine"), topology, {root});
    EXPECT_LT(bine.hops * 10, binomial.hops * 8);
    EXPECT_EQ(bine.farthest, 85U);
    EXPECT_EQ(bine.in.size(), 255U);
    EXPECT_EQ(bine.most_open, 8U);
  }
}

// Messages take a microsecond and nothing else costs anything: the price counts rounds.
double rounds(const Algorithm& algorithm, std::int32_t size, const Shape& shape) {
  CostModel model;
  model.levels = {{1, 0, {}}};
  const TopologyView topology = TopologyView::flat(size);
  return price(
      topology, [&](std::int32_t rank) { return algorithm.build(topology, rank, shape); }, 8, model);
}

TEST(Rounds, AreLogarithmsToTheRadix) {
  const Algorithm& doubling = allreduce_named("recursive_doubling");
  EXPECT_EQ(rounds(doubling, 64, {0, 2}), 6);
  EXPECT_EQ(rounds(doubling, 64, {0, 4}), 3);
  EXPECT_EQ(rounds(doubling, 64, {0, 8}), 2);
  EXPECT_EQ(rounds(doubling, 3, {0, 2}), 2) << "a pair first, while the third sends, and last";
  EXPECT_EQ(rounds(doubling, 3, {0, 3}), 1);
  EXPECT_EQ(rounds(doubling, 48, {0, 4}), 3);
  EXPECT_EQ(rounds(doubling, 49, {0, 4}), 4);
  EXPECT_EQ(rounds(doubling, 1000, {0, 8}), 4) << "of 8, 5, 5 and 5 ranks: all take part";
  EXPECT_EQ(rounds(doubling, 1009, {0, 8}), 5) << "a prime: 512 of them in three, a pair first and last";
  EXPECT_EQ(rounds(doubling, 96, {0, 4}), 4);
  EXPECT_EQ(rounds(doubling, 56, {0, 8}), 2);
  EXPECT_EQ(rounds(allreduce_named("swing"), 64, {}), 6);
  EXPECT_EQ(rounds(allreduce_named("swing"), 64, {0, 2, 2}), 12);
  EXPECT_EQ(rounds(bcast_named("bine"), 64, {}), 6);
}

TEST(Rounds, OfAllgathersAreAsFewForAnyNumberOfRanks) {
  const Algorithm& bruck = allgather_named("bruck");
  EXPECT_EQ(rounds(bruck, 64, {0, 2}), 6);
  EXPECT_EQ(rounds(bruck, 65, {0, 2}), 7);
  EXPECT_EQ(rounds(bruck, 49, {0, 4}), 3);
  EXPECT_EQ(rounds(bruck, 7, {0, 7}), 1);
  const Algorithm& doubling = allgather_named("recursive_doubling");
  EXPECT_EQ(rounds(doubling, 64, {0, 4}), 3);
  EXPECT_EQ(rounds(doubling, 12, {0, 4}), 2);
  EXPECT_EQ(rounds(doubling, 13, {0, 4}), 2) << "a prime: by bruck";
  EXPECT_EQ(rounds(allgather_named("ring"), 13, {}), 12);
}

TEST(Rounds, OfAWiderRadixHaveMoreMessagesOpen) {
  for (const std::int32_t radix : {2, 4, 8}) {
    const Schedule s = allreduce_named("recursive_doubling").build(TopologyView::flat(64), 37, {0, radix});
    EXPECT_EQ(s.max_open, 2U * (static_cast<std::uint32_t>(radix) - 1));
  }
}

// Messages and node phases that take as long as each other: side by side, not one after the other.
TEST(Overlap, NodePhasesHideBehindMessages) {
  CostModel model;
  model.levels = {{10, 0, {0, 0.01}}, {2000, 100, {0, 1}}};
  model.team.fill({{100, 1}, {100, 0.5}});
  const TopologyView topology = blocks(32, 4);
  const TopologyView hosts = TopologyView::flat(8);
  const std::size_t bytes = 8 << 20;
  const auto priced = [&](const Algorithm& algorithm, const TopologyView& on, const Shape& shape) {
    return price(
        on, [&](std::int32_t rank) { return algorithm.build(on, rank, shape); }, bytes, model);
  };
  const double phases = static_cast<double>(bytes);  // a fold and a spread, half a nanosecond a byte each
  const double ring = priced(allreduce_named("ring"), hosts, {});
  EXPECT_LT(priced(allreduce_named("two_level_ring"), topology, {}), ring + phases * 0.2);
  const double halving = priced(allreduce_named("rabenseifner"), hosts, {});
  EXPECT_GT(priced(allreduce_named("two_level"), topology, {0, 2, 2}), halving + phases * 0.9) << "one piece";
  EXPECT_LT(priced(allreduce_named("two_level"), topology, {0, 2, 17}), halving + phases * 0.3);
  const double chain = priced(bcast_named("chain"), hosts, {0, 2, 64});
  EXPECT_LT(priced(bcast_named("two_level_chain"), topology, {0, 2, 64}), chain + phases * 0.1);
  const double trees = priced(bcast_named("double_binary_tree"), hosts, {0, 2, 64});
  EXPECT_LT(priced(bcast_named("two_level"), topology, {0, 2, 66}), trees + phases * 0.3);
}

// ---- What is chosen

Choice chosen(const TopologyView& topology, const LevelCost& between_nodes, Collective collective,
              std::size_t bytes) {
  CostModel model = default_cost_model({200, 0.1}, {1, 1}, false);
  model.levels[1] = between_nodes;
  const Preferences preferences;
  const Selector selector(topology, model, {true, true}, preferences);
  return selector.select(collective, bytes, false).value().choice;
}

constexpr LevelCost kEthernet{18000, 2000, {0, 8}};  // 1 Gbit/s
constexpr LevelCost kFabric{1200, 300, {0, 0.08}};   // 100 Gbit/s

TEST(Choices, ShortMessagesTakeTheRadixThatTheCostsCallFor) {
  const Choice three = chosen(TopologyView::flat(3), kEthernet, Collective::allreduce, 8);
  EXPECT_STREQ(three.algorithm->name, "recursive_doubling");
  EXPECT_EQ(three.shape.radix, 3);
  const Choice many = chosen(TopologyView::flat(64), kEthernet, Collective::allreduce, 8);
  EXPECT_STREQ(many.algorithm->name, "recursive_doubling");
  EXPECT_EQ(many.shape.radix, 8);
  EXPECT_EQ(chosen(TopologyView::flat(64), kFabric, Collective::allreduce, 8).shape.radix, 4);
  const Choice spread = chosen(TopologyView::flat(64), kFabric, Collective::bcast, 8);
  EXPECT_STREQ(spread.algorithm->name, "postal");
  EXPECT_EQ(spread.shape.radix, 4);
  // Handing over takes as long as the way: nothing to gain.
  EXPECT_EQ(chosen(TopologyView::flat(64), {500, 500, {}}, Collective::allreduce, 8).shape.radix, 2);
}

TEST(Choices, LargeVectorsGoAroundNodesWithSeveralLeaders) {
  for (const std::size_t bytes : {std::size_t{32} << 10, std::size_t{1} << 20, std::size_t{16} << 20}) {
    const Choice sum = chosen(blocks(8, 2), kEthernet, Collective::allreduce, bytes);
    EXPECT_STREQ(sum.algorithm->name, "two_level_ring") << bytes;
    EXPECT_EQ(sum.shape.leaders, 2U) << bytes;
  }
  EXPECT_STREQ(chosen(blocks(8, 2), kEthernet, Collective::bcast, 16 << 20).algorithm->name,
               "two_level_chain");
  EXPECT_STREQ(chosen(blocks(8, 2), kEthernet, Collective::allreduce, 8).algorithm->name, "two_level");
}

// Swing and Bine trees cost as much as what they take after wherever all nodes are equally far.
TEST(Choices, NearerPartnersNeedAMachineWithDistances) {
  const Preferences preferences;
  const auto offered = [&](const TopologyView& topology, Collective collective, const std::string& name) {
    const Selector selector(topology, default_cost_model({200, 0.1}, {1000, 1}, false), {true, true},
                            preferences);
    const std::vector<Choice> all = selector.candidates(collective, 1 << 20, false);
    return std::any_of(all.begin(), all.end(), [&](const Choice& c) { return c.algorithm->name == name; });
  };
  std::vector<std::int32_t> node_of(12);
  std::vector<std::int32_t> rack_of(12);
  for (std::int32_t rank = 0; rank < 12; ++rank) {
    node_of[static_cast<std::size_t>(rank)] = rank;
    rack_of[static_cast<std::size_t>(rank)] = rank / 5;
  }
  const TopologyView racks({node_of, rack_of});
  EXPECT_FALSE(offered(TopologyView::flat(12), Collective::allreduce, "swing"));
  EXPECT_FALSE(offered(TopologyView::flat(12), Collective::bcast, "bine"));
  EXPECT_TRUE(offered(racks, Collective::allreduce, "swing"));
  EXPECT_TRUE(offered(racks, Collective::bcast, "bine"));
}

}  // namespace
}  // namespace heddle::test
