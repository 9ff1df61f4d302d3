// HEDDLE_ALGORITHM and tuning files: what they mean, and one clear line for what they cannot mean.
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <limits>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "comm/plan_cache.hpp"
#include "communicator/party.hpp"
#include "select/selector.hpp"

namespace heddle::test {
namespace {

class TuningFile {
 public:
  explicit TuningFile(const std::string& text) { std::ofstream(path_) << text; }
  TuningFile(const TuningFile&) = delete;
  TuningFile& operator=(const TuningFile&) = delete;
  ~TuningFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_ = ::testing::TempDir() + "heddle-tuning-" + std::to_string(getpid()) + ".json";
};

Preferences with_algorithm(const std::string& text) {
  Config config;
  config.algorithm = text;
  return read_preferences(config);
}

TEST(Preferences, ABareNameForcesWhateverHasIt) {
  const Preferences p = with_algorithm("double_binary_tree");
  ASSERT_NE(p.forced_allreduce, nullptr);
  ASSERT_NE(p.forced_bcast, nullptr);
  EXPECT_STREQ(p.forced_allreduce->name, "double_binary_tree");
  EXPECT_TRUE(p.complaints.empty());
  EXPECT_EQ(with_algorithm("ring").forced_bcast, nullptr);
}

TEST(Preferences, AScopedNameForcesOne) {
  const Preferences p = with_algorithm("allreduce:ring,bcast:chain");
  EXPECT_STREQ(p.forced_allreduce->name, "ring");
  EXPECT_STREQ(p.forced_bcast->name, "chain");
  EXPECT_TRUE(p.complaints.empty());
}

TEST(Preferences, WrongNamesAreReportedWithTheKnownOnes) {
  for (const char* text : {"rind", "bcast:ring", "reduce:ring", "allreduce:", ":"}) {
    const Preferences p = with_algorithm(text);
    EXPECT_EQ(p.forced_allreduce, nullptr) << text;
    EXPECT_EQ(p.forced_bcast, nullptr) << text;
    ASSERT_EQ(p.complaints.size(), 1U) << text;
    EXPECT_NE(p.complaints[0].find(std::string("HEDDLE_ALGORITHM=\"") + text + "\""), std::string::npos);
    EXPECT_NE(p.complaints[0].find("recursive_doubling"), std::string::npos);
  }
}

TEST(Preferences, AWrongNameDoesNotSpoilTheOthers) {
  const Preferences p = with_algorithm("allreduce:ring,bcast:nonsense");
  EXPECT_STREQ(p.forced_allreduce->name, "ring");
  EXPECT_EQ(p.complaints.size(), 1U);
}

TEST(TuningFiles, ARangeMayEndWhereNumbersDo) {
  const auto tuning =
      parse_tuning(R"({"version": 1, "rules": [{"collective": "allreduce", "algorithm": "ring",
      "bytes": [0, 18446744073709551615]}]})");
  ASSERT_TRUE(tuning.ok()) << tuning.status().message();
  EXPECT_EQ(tuning->rules[0].bytes[0], 0);
  EXPECT_EQ(tuning->rules[0].bytes[1], INT64_MAX);
}

TEST(TuningFiles, RulesAreRead) {
  const TuningFile file(R"({"version": 1, "rules": [
    {"collective": "allreduce", "algorithm": "ring", "ranks": [2, 8], "nodes": [1, 2], "bytes": [100, 200],
     "chunks": 3, "leaders": 4},
    {"collective": "bcast", "algorithm": "knomial", "radix": 5}], "streamed_results_from": 123456})");
  const auto tuning = read_tuning_file(file.path());
  ASSERT_TRUE(tuning.ok()) << tuning.status().message();
  const std::vector<TuningRule>& rules = tuning->rules;
  ASSERT_EQ(rules.size(), 2U);
  EXPECT_STREQ(rules[0].algorithm->name, "ring");
  EXPECT_EQ(rules[0].shape.chunks, 3U);
  EXPECT_EQ(rules[0].shape.leaders, 4U);
  EXPECT_EQ(rules[0].bytes[1], 200);
  EXPECT_EQ(rules[1].shape.radix, 5);
  EXPECT_EQ(tuning->streamed_from, 123456U);
  const auto without = parse_tuning(R"({"version": 1, "rules": []})");
  ASSERT_TRUE(without.ok());
  EXPECT_FALSE(without->streamed_from.has_value());
}

TEST(TuningFiles, MistakesAreNamed) {
  const std::pair<const char*, const char*> mistakes[] = {
      {"", "is not JSON"},
      {"{", "is not JSON"},
      {"[]", "\"version\": 1"},
      {"null", "\"version\": 1"},
      {R"({"version": 2, "rules": []})", "\"version\": 1"},
      {R"({"version": 1})", "\"rules\""},
      {R"({"version": 1, "rules": {}})", "\"rules\""},
      {R"({"version": 1, "rules": [7]})", "rule 1: is not an object"},
      {R"({"version": 1, "rules": [], "streamed_results_from": -1})", "\"streamed_results_from\" must be"},
      {R"({"version": 1, "rules": [], "streamed_results_from": "now"})", "\"streamed_results_from\" must be"},
      {R"({"version": 1, "rules": [{"collective": "gather", "algorithm": "ring"}]})",
       "\"collective\" must be"},
      {R"({"version": 1, "rules": [{"collective": 3}]})", "\"collective\" must be"},
      {R"({"version": 1, "rules": [{"collective": "bcast", "algorithm": "ring"}]})",
       "\"algorithm\" must be one of"},
      {R"({"version": 1, "rules": [{"collective": "allreduce", "algorithm": "ring", "bytes": 5}]})",
       "\"bytes\" must be [least, most]"},
      {R"({"version": 1, "rules": [{"collective": "allreduce", "algorithm": "ring", "ranks": [1, "x"]}]})",
       "\"ranks\" must be [least, most]"},
      {R"({"version": 1, "rules": [{"collective": "allreduce", "algorithm": "ring", "chunks": 0}]})",
       "\"chunks\" must be an integer from 1"},
      {R"({"version": 1, "rules": [{"collective": "allreduce", "algorithm": "two_level", "leaders": 0}]})",
       "\"leaders\" must be an integer from 1"},
      {R"({"version": 1, "rules": [{"collective": "allreduce", "algorithm": "ring", "chunks": 1e9}]})",
       "\"chunks\" must be an integer from 1"},
      {R"({"version": 1, "rules": [{"collective": "allreduce", "algorithm": "knomial", "radix": 1}]})",
       "\"radix\" must be 2 or more"},
      {R"({"version": 1, "rules": [{"collective": "allreduce", "algorithm": "ring"}, {}]})", "rule 2"},
      {R"({"version": 1, "rules": [{"collective": "allreduce", "algorithm": "ring", "size": [0, 8]}]})",
       "rule 1: \"size\" is not a key; known: collective, bytes"},
      {R"({"version": 1, "rules": [{"collective": "allreduce", "algorithm": "knomial", "Radix": 4}]})",
       "rule 1: \"Radix\" is not a key"},
      {R"({"version": 1, "rules": [], "streamed_results_form": 4096})",
       "\"streamed_results_form\" is not a key; known: version, made_for"},
      {R"({"version": 1, "rules": [{"collective": "allreduce", "algorithm": "ring", "bytes": [8, 4]}]})",
       "rule 1: \"bytes\" must be [least, most] with 0 <= least <= most, not [8,4]"},
      {R"({"version": 1, "rules": [{"collective": "allreduce", "algorithm": "ring", "nodes": [-1, 4]}]})",
       "\"nodes\" must be [least, most] with 0 <= least <= most, not [-1,4]"},
  };
  for (const auto& [text, part] : mistakes) {
    const TuningFile file(text);
    const auto rules = read_tuning_file(file.path());
    ASSERT_FALSE(rules.ok()) << text;
    EXPECT_NE(rules.status().message().find(part), std::string::npos)
        << text << ": " << rules.status().message();
    EXPECT_NE(rules.status().message().find(file.path()), std::string::npos) << rules.status().message();
  }
}

TEST(TuningFiles, WhatCannotBeReadIsReported) {
  const TuningFile pipe("");
  std::remove(pipe.path().c_str());
  ASSERT_EQ(mkfifo(pipe.path().c_str(), 0600), 0) << "of which nobody writes";
  for (const char* path : {"/nonexistent/heddle.json", "/", pipe.path().c_str()}) {
    Config config;
    config.tuning_file = path;
    const Preferences p = read_preferences(config);
    EXPECT_TRUE(p.tuning.rules.empty());
    ASSERT_EQ(p.complaints.size(), 1U);
    EXPECT_NE(p.complaints[0].find(std::string("HEDDLE_TUNING_FILE=\"") + path + "\""), std::string::npos);
    EXPECT_NE(p.complaints[0].find("; choosing as without it"), std::string::npos);
  }
}

TEST(TuningFiles, ARuleDecidesWhereItMatches) {
  const TuningFile file(R"({"version": 1, "rules": [
    {"collective": "allreduce", "algorithm": "knomial", "bytes": [0, 4095]},
    {"collective": "allreduce", "algorithm": "double_binary_tree", "ranks": [3, 3], "chunks": 5}]})");
  Party party({1, 2, 3});
  Config config = quiet();
  config.tuning_file = file.path();
  party.run(config, [](Rank& me, Communicator& comm) {
    EXPECT_STREQ(comm.algorithm(Collective::allreduce, 100), "knomial");
    EXPECT_STREQ(comm.algorithm(Collective::allreduce, 100'000), "double_binary_tree");
    std::vector<std::int64_t> data = terms(me.rank, 20'000, 1);
    ASSERT_TRUE(comm.allreduce(data.data(), data.data(), data.size(), DType::i64, Op::sum).ok());
    EXPECT_EQ(data, sums(3, 20'000, 1));
  });
}

// A choice is one for all sizes of a class: the last one that a rule names brings its class along.
TEST(TuningFiles, ARuleServesTheClassesOfAllItsSizes) {
  Preferences preferences;
  preferences.tuning = parse_tuning(R"({"version": 1, "rules": [
    {"collective": "allreduce", "algorithm": "knomial", "bytes": [0, 4096]},
    {"collective": "allreduce", "algorithm": "ring", "bytes": [4097, 50000]}]})")
                           .value();
  const TopologyView topology = TopologyView::flat(4);
  const Selector selector(topology, default_cost_model({500, 0.1}, {1400, 0.08, 200}, false), {false, true},
                          preferences);
  const auto chosen = [&](std::size_t bytes) {
    const Selection selection = selector.select(Collective::allreduce, middle_of_class(bytes), false).value();
    return std::string(selection.by == ChosenBy::tuning ? selection.choice.algorithm->name : "none");
  };
  for (const std::size_t bytes : {0, 1, 4095, 4096, 8191})
    EXPECT_EQ(chosen(bytes), "knomial") << bytes;
  for (const std::size_t bytes : {8192, 50'000, 65'535})
    EXPECT_EQ(chosen(bytes), "ring") << bytes;
  EXPECT_EQ(chosen(65'536), "none");
  EXPECT_EQ(chosen(SIZE_MAX), "none");
}

TEST(TuningFiles, ABadOneLeavesTheChoiceToThePrice) {
  const TuningFile file("nonsense");
  Party party({1, 1});
  Config config = quiet();
  config.tuning_file = file.path();
  party.run(config, [](Rank&, Communicator& comm) {
    EXPECT_STREQ(comm.algorithm(Collective::allreduce, 8), "team");
    EXPECT_TRUE(comm.barrier().ok());
  });
}

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
    });
  }
}

// More nodes than are run one by one: what is chosen by estimate costs about as little as anything does when all ranks are run.
TEST(Selection, OfManyNodesIsAboutTheBest) {
  const CostModel model = default_cost_model({500, 0.1}, {1400, 0.08, 200, 0, 1}, false);
  const Preferences nothing;
  for (const std::int32_t ranks : {100, 128}) {
    const TopologyView topology = TopologyView::flat(ranks);
    const Selector selector(topology, model, {false, true}, nothing);
    for (const Collective collective : {Collective::allreduce, Collective::bcast}) {
      for (const std::size_t bytes : {8, 32 << 10, 4 << 20}) {
        const auto exact_ns = [&](const Choice& c) {
          return price(
              topology, [&](std::int32_t rank) { return c.algorithm->build(topology, rank, c.shape); }, bytes,
              model);
        };
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

// The same where ranks share nodes, which decides between algorithms, and where those of a node do not follow each other.
TEST(Selection, OfManyRanksOnANodeIsAboutTheBest) {
  struct Case {
    std::int32_t nodes;
    std::int32_t ranks_of_node;
    bool in_turn;
  };
  constexpr double kAbout = 1.35;
  const CostModel model = default_cost_model({500, 0.1}, {1400, 0.08, 200, 0, 1}, false);
  const Preferences nothing;
  for (const Case& each : {Case{16, 5, false}, Case{33, 16, false}, Case{33, 16, true}, Case{48, 8, false},
                           Case{64, 16, true}, Case{8, 64, true}, Case{128, 4, true}}) {
    const TopologyView topology = placed(each.nodes, each.ranks_of_node, each.in_turn);
    const Selector selector(topology, model, {true, true}, nothing);
    for (const Collective collective : {Collective::allreduce, Collective::bcast}) {
      for (const std::size_t bytes : {8, 8 << 10, 512 << 10}) {
        const auto exact_ns = [&](const Choice& c, double give_up_ns) {
          return price(
              topology, [&](std::int32_t rank) { return c.algorithm->build(topology, rank, c.shape); }, bytes,
              model, give_up_ns);
        };
        const Choice chosen = selector.select(collective, bytes, false).value().choice;
        double least_ns = exact_ns(chosen, std::numeric_limits<double>::infinity());
        const double good_ns = least_ns / kAbout;
        for (const Choice& c : selector.candidates(collective, bytes, false))
          least_ns = std::min(least_ns, exact_ns(c, good_ns));
        EXPECT_GE(least_ns, good_ns) << each.nodes << " nodes of " << each.ranks_of_node
                                     << (each.in_turn ? " in turn, " : ", ") << bytes
                                     << " bytes: " << chosen.algorithm->name;
      }
    }
  }
}

// A ring whose price is as good as the best one's is preferred on a few nodes, where it needs few steps, and not on many.
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

// Pricing stops where a candidate is known to cost too much: that changes neither the choice nor what is said of the next one.
TEST(Selection, IsTheSameAsIfAllWerePricedToTheEnd) {
  constexpr double kClose = 1.25;
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

// On many nodes the one in the fewest pieces is chosen of all whose price is as good as the best one's, unless it is a ring.
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

// Ranks that share cores: a message takes six times as long as a rank is busy with it, and an allreduce keeps all of them busy.
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
    }
  });
  const std::string log = ::testing::internal::GetCapturedStderr();
  const std::size_t first = log.find("heddle[0] info: allreduce up to 7 bytes: team");
  ASSERT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find("allreduce up to 7", first + 20), std::string::npos) << log;
  EXPECT_NE(log.find("bcast up to 7 bytes: chain (radix 2, chunks 1) by HEDDLE_ALGORITHM"), std::string::npos)
      << log;
  EXPECT_EQ(log.find("heddle[1]"), std::string::npos) << log;
}

}  // namespace
}  // namespace heddle::test
