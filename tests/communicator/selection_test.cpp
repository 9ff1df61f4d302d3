// What is chosen by price: about the best, on few nodes and by estimate on many, and what is said of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "comm/plan_cache.hpp"
#include "communicator/party.hpp"
#include "select/selector.hpp"

namespace heddle::test {
namespace {

// On one node nothing beats the team: whoever prices otherwise has the model wrong.
TEST(Selection, OneNodeUsesItsTeam) {
  for (const int ranks : {2, 3, 4, 8}) {
    Party party(std::vector<std::uint64_t>(static_cast<std::size_t>(ranks), 1));
    party.run(quiet(), [&](Rank&, Communicator& comm) {
      for (const std::size_t bytes : {0, 8, 5000, 9000, 400'000, 3'000'000, 100'000'000}) {
        EXPECT_STREQ(comm.algorithm(Collective::allreduce, bytes), "team")
            << ranks << " ranks, " << bytes << " bytes";
        EXPECT_STREQ(comm.algorithm(Collective::bcast, bytes), "team")
            << ranks << " ranks, " << bytes << " bytes";
      }
      EXPECT_STREQ(comm.algorithm(Collective::barrier, 0), "team");
      for (const std::size_t bytes : {8, 9000, 3'000'000, 100'000'000})
        EXPECT_STREQ(comm.algorithm(Collective::reduce, bytes), "team");
      for (const std::size_t bytes : {8, 9000, 3'000'000, 100'000'000})
        EXPECT_STREQ(comm.algorithm(Collective::allgather, bytes), "team");
    });
  }
}

// Of an allgather `bytes` are each rank's.
double exact_price(const TopologyView& topology, const Choice& choice, std::size_t bytes,
                   const CostModel& model, double give_up_ns = std::numeric_limits<double>::infinity()) {
  const bool gathers = choice.algorithm->collective == Collective::allgather;
  const std::size_t ranks = gathers ? static_cast<std::size_t>(topology.size()) : 1;
  return price(
      topology, [&](std::int32_t rank) { return choice.algorithm->build(topology, rank, choice.shape); },
      bytes * ranks, model, give_up_ns);
}

// More nodes than are run one by one: what is chosen by estimate costs about as little as anything does when
// all ranks are run.
TEST(Selection, OfManyNodesIsAboutTheBest) {
  const CostModel model = default_cost_model({500, 0.1}, {1400, 0.08, 200, 0, 1}, false);
  const Preferences nothing;
  for (const std::int32_t ranks : {100, 128}) {
    const TopologyView topology = TopologyView::flat(ranks);
    const Selector selector(topology, model, {false, true}, nothing);
    for (const Collective collective : kChosenCollectives) {
      for (const std::size_t bytes : {8, 32 << 10, 4 << 20}) {
        const auto exact_ns = [&](const Choice& c) { return exact_price(topology, c, bytes, model); };
        double least_ns = std::numeric_limits<double>::infinity();
        for (const Choice& c : selector.candidates(collective, bytes, false))
          least_ns = std::min(least_ns, exact_ns(c));
        const Result<Selection> chosen = selector.select(collective, bytes, false);
        ASSERT_TRUE(chosen.ok());
        EXPECT_LE(exact_ns(chosen.value().choice), 1.1 * least_ns)
            << ranks << " ranks, " << bytes << " bytes: " << chosen.value().choice.algorithm->name;
      }
    }
  }
}

TopologyView placed(std::int32_t nodes, std::int32_t ranks_of_node, bool in_turn) {
  std::vector<std::int32_t> node_of;
  for (std::int32_t rank = 0; rank < nodes * ranks_of_node; ++rank)
    node_of.push_back(in_turn ? rank % nodes : rank / ranks_of_node);
  return TopologyView({std::move(node_of)});
}

// The same where ranks share nodes, which decides between algorithms, and where those of a node do not follow
// each other.
TEST(Selection, OfManyRanksOnANodeIsAboutTheBest) {
  struct Case {
    std::int32_t nodes;
    std::int32_t ranks_of_node;
    bool in_turn;
  };
  const auto about = [](Collective collective) { return collective == Collective::allgather ? 1.4 : 1.35; };
  const CostModel model = default_cost_model({500, 0.1}, {1400, 0.08, 200, 0, 1}, false);
  const Preferences nothing;
  for (const Case& each : {Case{16, 5, false}, Case{33, 16, false}, Case{33, 16, true}, Case{48, 8, false},
                           Case{64, 16, true}, Case{8, 64, true}, Case{128, 4, true}}) {
    const TopologyView topology = placed(each.nodes, each.ranks_of_node, each.in_turn);
    const Selector selector(topology, model, {true, true}, nothing);
    for (const Collective collective : {Collective::allreduce, Collective::bcast, Collective::allgather}) {
      for (std::size_t bytes : {8, 8 << 10, 512 << 10}) {
        // Of about as much in all.
        if (collective == Collective::allgather && bytes > 8) bytes /= 64;
        const auto exact_ns = [&](const Choice& c, double give_up_ns) {
          return exact_price(topology, c, bytes, model, give_up_ns);
        };
        const Choice chosen = selector.select(collective, bytes, false).value().choice;
        double least_ns = exact_ns(chosen, std::numeric_limits<double>::infinity());
        const double good_ns = least_ns / about(collective);
        for (const Choice& c : selector.candidates(collective, bytes, false))
          least_ns = std::min(least_ns, exact_ns(c, good_ns));
        EXPECT_GE(least_ns, good_ns) << each.nodes << " nodes of " << each.ranks_of_node
                                     << (each.in_turn ? " in turn, " : ", ") << bytes
                                     << " bytes: " << chosen.algorithm->name;
      }
    }
  }
}

// A ring whose price is as good as the best one's is preferred on a few nodes, where it needs few steps, and
// not on many.
TEST(Selection, PrefersARingOnFewNodesAlone) {
  const CostModel model = default_cost_model({500, 0.1}, {1400, 0.08, 200}, false);
  const Preferences nothing;
  constexpr std::size_t kBytes = 64 << 20;
  for (const std::int32_t ranks : {4, 16, 32, 64}) {
    const TopologyView topology = TopologyView::flat(ranks);
    const Selector selector(topology, model, {false, true}, nothing);
    double least_ns = std::numeric_limits<double>::infinity();
    double ring_ns = least_ns;
    for (const Choice& c : selector.candidates(Collective::allreduce, kBytes, false)) {
      const double ns = price(
          topology, [&](std::int32_t rank) { return c.algorithm->build(topology, rank, c.shape); }, kBytes,
          model);
      least_ns = std::min(least_ns, ns);
      if (c.algorithm->name == std::string("ring")) ring_ns = std::min(ring_ns, ns);
    }
    ASSERT_LT(ring_ns, 1.03 * least_ns) << ranks;
    const Result<Selection> chosen = selector.select(Collective::allreduce, kBytes, false);
    ASSERT_TRUE(chosen.ok());
    const std::string name = chosen.value().choice.algorithm->name;
    if (ranks <= 16)
      EXPECT_EQ(name, "ring") << ranks;
    else
      EXPECT_TRUE(name != "ring" || ring_ns == least_ns) << ranks << ' ' << name;
  }
}

// Pricing stops where a candidate is known to cost too much: that changes neither the choice nor what is said
// of the next one.
TEST(Selection, IsTheSameAsIfAllWerePricedToTheEnd) {
  constexpr double kClose = 1.1;
  const CostModel model = default_cost_model({500, 0.1}, {1400, 0.08, 200, 0, 1}, false);
  const Preferences nothing;
  int close = 0;
  int far = 0;
  for (const TopologyView& topology :
       {TopologyView::flat(6), TopologyView::flat(64), TopologyView::uniform(8, 8)}) {
    const Selector selector(topology, model, {true, true}, nothing);
    for (const Collective collective : {Collective::allreduce, Collective::bcast, Collective::barrier}) {
      for (const std::size_t bytes : {8, 24 << 10, 1 << 20}) {
        const Selection chosen = selector.select(collective, bytes, false).value();
        double least_ns = std::numeric_limits<double>::infinity();
        const Choice* next = nullptr;
        std::vector<Choice> all = selector.candidates(collective, bytes, false);
        for (Choice& c : all) {
          c.price_ns = selector.price_of(c, bytes);
          least_ns = std::min(least_ns, c.price_ns);
          const bool other = c.algorithm != chosen.choice.algorithm;
          if (other && (next == nullptr || c.price_ns < next->price_ns)) next = &c;
        }
        EXPECT_LE(chosen.choice.price_ns, 1.03 * least_ns);
        EXPECT_EQ(chosen.choice.price_ns, selector.price_of(chosen.choice, bytes));
        const bool is_close = next != nullptr && next->price_ns <= kClose * least_ns;
        EXPECT_EQ(chosen.runner_up, is_close ? next->algorithm : nullptr);
        EXPECT_EQ(chosen.runner_up_ns, is_close ? next->price_ns : 0);
        (is_close ? close : far) += 1;
      }
    }
  }
  EXPECT_GT(close, 0);
  EXPECT_GT(far, 0);
}

// On many nodes the one in the fewest pieces is chosen of all whose price is as good as the best one's,
// unless it is a ring.
TEST(Selection, PrefersFewPiecesOnManyNodes) {
  const CostModel model = default_cost_model({500, 0.1}, {1400, 0.08, 200}, false);
  const Preferences nothing;
  int not_the_cheapest = 0;
  for (const std::int32_t ranks : {32, 64, 100, 1024}) {
    const TopologyView topology = TopologyView::flat(ranks);
    const Selector selector(topology, model, {false, true}, nothing);
    for (const Collective collective : {Collective::allreduce, Collective::bcast}) {
      for (const std::size_t bytes : {1 << 10, 1 << 20, 24 << 20}) {
        std::vector<Choice> all = selector.candidates(collective, bytes, false);
        std::erase_if(all, [](const Choice& c) { return c.algorithm->in_rounds; });
        double least_ns = std::numeric_limits<double>::infinity();
        for (Choice& c : all)
          least_ns = std::min(least_ns, c.price_ns = selector.price_of(c, bytes));
        const Result<Selection> chosen = selector.select(collective, bytes, false);
        ASSERT_TRUE(chosen.ok());
        const Choice& choice = chosen.value().choice;
        EXPECT_LE(choice.price_ns, 1.03 * least_ns);
        not_the_cheapest += choice.price_ns > least_ns ? 1 : 0;
        for (const Choice& c : all) {
          if (c.price_ns > 1.03 * least_ns || c.algorithm->neighbours) continue;
          EXPECT_LE(choice.shape.chunks, c.shape.chunks)
              << ranks << " ranks, " << bytes << " bytes: " << choice.algorithm->name << " instead of "
              << c.algorithm->name;
        }
      }
    }
  }
  EXPECT_GT(not_the_cheapest, 0);
}

// Where all send far all along, prices are those of a network that was seen to bear it.
TEST(Selection, SendsFarInEveryRoundWhereTheNetworkBearsIt) {
  struct Case {
    std::int32_t ranks;
    double crossing;
    bool chosen;
  };
  const Preferences nothing;
  constexpr std::size_t kBytes = 1 << 20;
  for (const Case& c : {Case{16, 0, false}, Case{16, 1, true}, Case{64, 0, false}, Case{64, 1, true},
                        Case{64, 5, false}, Case{1024, 1, true}, Case{1024, 5, false}}) {
    const TopologyView topology = TopologyView::flat(c.ranks);
    const CostModel model = default_cost_model({500, 0.1}, {1400, 0.08, 200, 0, c.crossing}, false);
    const Selector selector(topology, model, {false, true}, nothing);
    const Choice chosen = selector.cheapest(Collective::bcast, kBytes, false);
    EXPECT_EQ(chosen.algorithm->name == std::string("circulant"), c.chosen)
        << c.ranks << ' ' << c.crossing << ' ' << chosen.algorithm->name;
  }
}

TEST(Selection, PricesRoundsAsTheyWereMeasured) {
  const Preferences nothing;
  const TopologyView topology = TopologyView::flat(64);
  const auto priced = [&](const char* name, double crossing) {
    const CostModel model = default_cost_model({500, 0.1}, {1400, 0.08, 200, 0, crossing}, false);
    const Selector selector(topology, model, {false, true}, nothing);
    return selector.price_of({find_algorithm(Collective::bcast, name), {0, 2, 16}}, 1 << 20);
  };
  EXPECT_DOUBLE_EQ(priced("circulant", 3), 3 * priced("circulant", 1));
  EXPECT_DOUBLE_EQ(priced("circulant", 0.9), priced("circulant", 1));
  EXPECT_DOUBLE_EQ(priced("double_binary_tree", 3), priced("double_binary_tree", 1));
}

// Ranks that share cores: a message takes six times as long as a rank is busy with it, and an allreduce keeps
// all of them busy.
TEST(Selection, ACrowdedRootSendsToAllByItself) {
  const CostModel model = default_cost_model({500, 0.1}, {10'000, 5, 5000, 30'000}, false);
  const Preferences nothing;
  const TopologyView topology = TopologyView::flat(4);
  const Selector selector(topology, model, {false, true}, nothing);
  const Choice bcast = selector.cheapest(Collective::bcast, 8, false);
  const Schedule root = bcast.algorithm->build(topology, 0, bcast.shape);
  EXPECT_EQ(std::count_if(root.steps.begin(), root.steps.end(),
                          [](const Step& s) { return s.kind == StepKind::send; }),
            3)
      << bcast.algorithm->name;
  const Choice allreduce = selector.cheapest(Collective::allreduce, 8, false);
  EXPECT_STREQ(allreduce.algorithm->name, "recursive_doubling");
  EXPECT_EQ(allreduce.shape.radix, 2U);
}

// Sizes of an allgather are each rank's: rounds of messages that double serve few bytes, rings many.
TEST(Selection, OfAnAllgatherGoesByTheBytesOfEachRank) {
  const CostModel model = default_cost_model({500, 0.1}, {1400, 0.08, 200, 0, 1}, false);
  const Preferences nothing;
  const TopologyView topology = TopologyView::flat(12);
  const Selector selector(topology, model, {false, true}, nothing);
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{4} << 10, std::size_t{4} << 20}) {
    const Choice chosen = selector.cheapest(Collective::allgather, bytes, false);
    EXPECT_DOUBLE_EQ(chosen.price_ns, exact_price(topology, chosen, bytes, model)) << bytes;
  }
  EXPECT_STREQ(selector.cheapest(Collective::allgather, 4 << 20, false).algorithm->name, "ring");
  EXPECT_STRNE(selector.cheapest(Collective::allgather, 8, false).algorithm->name, "ring");
}

TEST(Selection, IsSaidOnceOnRankZero) {
  Party party({1, 1});
  Config config;
  config.log_level = LogLevel::info;
  config.algorithm = "bcast:chain";
  ::testing::internal::CaptureStderr();
  party.run(config, [](Rank&, Communicator& comm) {
    int value = 1;
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(comm.allreduce(&value, &value, 1, DType::i32, Op::max).ok());
      EXPECT_TRUE(comm.bcast(&value, 4, 0).ok());
      int both[2] = {};
      EXPECT_TRUE(comm.allgather(&value, both, 4).ok());
    }
  });
  const std::string log = ::testing::internal::GetCapturedStderr();
  const std::size_t first = log.find("heddle[0] info: allreduce up to 7 bytes: team");
  ASSERT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find("allreduce up to 7", first + 20), std::string::npos) << log;
  EXPECT_NE(log.find("bcast up to 7 bytes: chain (radix 2, chunks 1) by HEDDLE_ALGORITHM"), std::string::npos)
      << log;
  EXPECT_NE(log.find("heddle[0] info: allgather up to 7 bytes of each rank: team"), std::string::npos) << log;
  EXPECT_EQ(log.find("heddle[1]"), std::string::npos) << log;
}

}  // namespace
}  // namespace heddle::test
