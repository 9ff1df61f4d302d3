// The search for a tuning file: with times that are made up, and on communicators.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "comm/measured_choices.hpp"
#include "comm/plan_cache.hpp"
#include "communicator/party.hpp"

namespace heddle::test {
namespace {

constexpr Collective kAllreduce = Collective::allreduce;
constexpr Collective kBcast = Collective::bcast;

// Of one collective; `bytes` of the size class tried.
using SecondsOf = std::function<double(const std::string& name, std::size_t bytes)>;

struct MadeUp {
  std::vector<std::string> names = {"ring", "rabenseifner", "knomial"};  // the first is the cheapest
  SecondsOf price;
  SecondsOf time;
  std::map<std::string, int> disturbed =
      {};  // that many timings of it, from the first on, take 50 times as long
  std::map<std::pair<std::string, std::size_t>, int> runs = {};
  double spent = 0;

  ChoiceTrial trial() {
    ChoiceTrial t;
    t.candidates = [this](Collective collective, std::size_t bytes) {
      std::vector<Choice> all;
      for (const std::string& name : names)
        all.push_back({find_algorithm(collective, name), Shape{}, price(name, bytes) * 1e9});
      return all;
    };
    t.time = [this](Collective, const Choice& choice, std::size_t bytes, int times) -> Result<Timing> {
      const std::string name = choice.algorithm->name;
      ++runs[{name, bytes}];
      const double one = time(name, bytes) * (disturbed[name]-- > 0 ? 50 : 1);
      spent += one * (times + 1);
      return Timing{one * times, one * (times + 1)};
    };
    return t;
  }
  bool ran(const std::string& name, std::size_t bytes) const { return runs.count({name, bytes}) != 0; }
};

SearchPlan thorough(std::size_t least, std::size_t most, double budget_s = 100) {
  SearchPlan plan;
  plan.ranks = 6;
  plan.nodes = 3;
  plan.collectives = {kAllreduce};
  plan.sizes = every_class(least, most);
  plan.budget = std::chrono::microseconds(static_cast<std::int64_t>(budget_s * 1e6));
  plan.thorough = true;
  return plan;
}

MeasuredChoices must(Result<MeasuredChoices> found) {
  EXPECT_TRUE(found.ok()) << found.status().message();
  return found.ok() ? std::move(found).value() : MeasuredChoices{};
}

// A microsecond and a nanosecond a byte, times what is said of the algorithm.
SecondsOf linear(std::map<std::string, double> factors) {
  return [factors = std::move(factors)](const std::string& name, std::size_t bytes) {
    const auto found = factors.find(name);
    return (1e-6 + 1e-9 * static_cast<double>(bytes)) * (found == factors.end() ? 1 : found->second);
  };
}

const TriedCandidate& candidate(const TriedSize& tried, const std::string& name) {
  for (const TriedCandidate& c : tried.candidates) {
    if (name == c.choice.algorithm->name) return c;
  }
  ADD_FAILURE() << name << " is no candidate";
  return tried.candidates.front();
}

TEST(EveryClass, IsTriedAtItsLeastSizeAndServedWhole) {
  const std::vector<TrialSize> sizes = every_class(4, 1024);
  ASSERT_EQ(sizes.size(), 9U);
  for (const TrialSize& size : sizes) {
    EXPECT_EQ(size.from, static_cast<std::int64_t>(size.bytes));
    EXPECT_EQ(size_class(size.bytes), size_class(static_cast<std::size_t>(size.up_to)));
    EXPECT_NE(size_class(size.bytes), size_class(static_cast<std::size_t>(size.up_to) + 1));
  }
}

TEST(Tuning, NeighbouringSizesWithOneWinnerShareARule) {
  MadeUp machine;
  machine.price = linear({});
  // ring up to 64, rabenseifner up to 512, ring at 1024, knomial beyond.
  machine.time = [](const std::string& name, std::size_t bytes) {
    const std::string best = bytes <= 64 || bytes == 1024 ? "ring"
                             : bytes <= 512               ? "rabenseifner"
                                                          : "knomial";
    return name == best ? 1e-6 : 2e-6;
  };
  const MeasuredChoices found = must(measure_choices(machine.trial(), thorough(4, 8192)));
  EXPECT_TRUE(found.complete);
  ASSERT_EQ(found.tuning.rules.size(), 2U) << "none where the choice by price wins";
  const TuningRule& first = found.tuning.rules[0];
  EXPECT_STREQ(first.algorithm->name, "rabenseifner");
  EXPECT_EQ(first.bytes[0], 128);
  EXPECT_EQ(first.bytes[1], 1023);
  EXPECT_EQ(first.ranks[0], 6);
  EXPECT_EQ(first.ranks[1], 6);
  EXPECT_EQ(first.nodes[0], 3);
  EXPECT_EQ(first.nodes[1], 3);
  const TuningRule& second = found.tuning.rules[1];
  EXPECT_STREQ(second.algorithm->name, "knomial");
  EXPECT_EQ(second.bytes[0], 2048);
  EXPECT_EQ(second.bytes[1], 16383);
}

TEST(Tuning, CollectivesHaveRulesOfTheirOwn) {
  MadeUp machine;
  machine.names = {"double_binary_tree", "knomial"};  // of both
  machine.price = linear({});
  machine.time = linear({{"knomial", 0.5}});
  SearchPlan plan = thorough(4, 1024);
  plan.collectives = {kAllreduce, kBcast};
  const MeasuredChoices found = must(measure_choices(machine.trial(), plan));
  ASSERT_EQ(found.tuning.rules.size(), 2U);
  for (const TuningRule& rule : found.tuning.rules) {
    EXPECT_EQ(rule.bytes[0], 4);
    EXPECT_EQ(rule.bytes[1], 2047);
  }
  EXPECT_NE(found.tuning.rules[0].collective, found.tuning.rules[1].collective);
}

TEST(Tuning, AWinnerStaysWhereItIsAsGood) {
  MadeUp machine;
  machine.price = linear({});
  // The two rivals take turns in being one per cent faster.
  machine.time = [](const std::string& name, std::size_t bytes) {
    if (name == "ring") return 2e-6;
    return (name == "knomial") == (size_class(bytes) % 2 == 0) ? 1e-6 : 1.01e-6;
  };
  EXPECT_EQ(must(measure_choices(machine.trial(), thorough(4, 8192))).tuning.rules.size(), 1U);
}

TEST(Tuning, WhatIsNotClearlyFasterHasNoRule) {
  MadeUp machine;
  machine.price = linear({});
  machine.time = linear({{"knomial", 0.95}});
  const MeasuredChoices found = must(measure_choices(machine.trial(), thorough(4, 8192)));
  EXPECT_TRUE(found.tuning.rules.empty());
  for (const TriedSize& tried : found.sizes) {
    EXPECT_TRUE(tried.decided);
    EXPECT_EQ(tried.winner, 0U);
  }
}

TEST(Tuning, WhoWinsMustWinAgain) {
  MadeUp machine;
  machine.names = {"ring", "knomial"};
  machine.price = linear({});
  machine.time = linear({});
  // Two of the first round and seven turns: the choice by price is disturbed in all of them, but not when
  // asked again.
  machine.disturbed["ring"] = 9;
  EXPECT_TRUE(must(measure_choices(machine.trial(), thorough(4, 4))).tuning.rules.empty());
  machine.disturbed["ring"] = 1000;
  EXPECT_EQ(must(measure_choices(machine.trial(), thorough(4, 4))).tuning.rules.size(), 1U);
}

TEST(Tuning, OneDisturbedTimingPutsNobodyOut) {
  MadeUp machine;
  machine.price = linear({});
  machine.time = linear({{"knomial", 0.5}});
  machine.disturbed["knomial"] = 1;
  EXPECT_EQ(must(measure_choices(machine.trial(), thorough(4, 64))).tuning.rules.size(), 1U);
}

TEST(Tuning, TheHopelessAreNotRun) {
  MadeUp machine;
  machine.price = linear({{"knomial", 1.2}});
  machine.time = [](const std::string& name, std::size_t bytes) {
    // Its price says nothing of it: only smaller sizes do.
    const double slow = name == "knomial" ? std::pow(static_cast<double>(bytes), 0.6) : 1;
    return (1e-6 + 1e-9 * static_cast<double>(bytes)) * slow;
  };
  const MeasuredChoices found = must(measure_choices(machine.trial(), thorough(4, std::size_t{64} << 20)));
  EXPECT_TRUE(machine.ran("knomial", 4));
  EXPECT_FALSE(machine.ran("knomial", 64));
  EXPECT_EQ(candidate(found.sizes[4], "knomial").outcome, TrialOutcome::hopeless);
  // Not out for ever: what was long ago says little.
  int later = 0;
  for (const auto& [what, runs] : machine.runs)
    later += what.first == "knomial" && what.second > 64 ? 1 : 0;
  EXPECT_GE(later, 1);
  EXPECT_LE(later, 6);
  EXPECT_TRUE(found.complete);
  EXPECT_TRUE(machine.ran("rabenseifner", std::size_t{64} << 20));
}

TEST(Tuning, APriceAloneLeavesNobodyOutWhereAskingCostsLittle) {
  MadeUp machine;
  machine.price = linear({{"knomial", 30}});
  machine.time = linear({{"knomial", 0.5}});
  const MeasuredChoices found = must(measure_choices(machine.trial(), thorough(4, 4096)));
  ASSERT_EQ(found.tuning.rules.size(), 1U);
  EXPECT_STREQ(found.tuning.rules[0].algorithm->name, "knomial");
  EXPECT_EQ(found.tuning.rules[0].bytes[0], 4);
}

TEST(Tuning, WhatThePriceCallsHopelessIsNotRun) {
  MadeUp machine;
  machine.price = linear({{"knomial", 1e6}});
  machine.time = linear({{"knomial", 1e6}});
  const MeasuredChoices found = must(measure_choices(machine.trial(), thorough(4, 4096)));
  for (const TriedSize& tried : found.sizes)
    EXPECT_EQ(candidate(tried, "knomial").outcome, TrialOutcome::hopeless);
  EXPECT_TRUE(found.complete);
}

TEST(Tuning, TheBudgetHolds) {
  // 64 MiB take two seconds each: nothing can be decided there.
  for (const double budget : {0.01, 0.3, 3.0}) {
    MadeUp machine;
    machine.price = linear({});
    machine.time = [](const std::string& name, std::size_t bytes) {
      return (1e-6 + 3e-8 * static_cast<double>(bytes)) * (name == "knomial" ? 0.5 : 1);
    };
    const MeasuredChoices found =
        must(measure_choices(machine.trial(), thorough(4, std::size_t{64} << 20, budget)));
    EXPECT_LE(machine.spent, 1.1 * budget) << budget;
    EXPECT_NEAR(found.spent_s, machine.spent, 1e-6);
    EXPECT_FALSE(found.complete) << budget;
    EXPECT_EQ(found.sizes.size(), 25U) << "all are reported";
    EXPECT_EQ(candidate(found.sizes[24], "ring").outcome, TrialOutcome::no_time);
    EXPECT_FALSE(found.sizes[24].decided);
    // The small ones have theirs.
    ASSERT_FALSE(found.tuning.rules.empty()) << budget;
    EXPECT_EQ(found.tuning.rules[0].bytes[0], 4);
  }
}

TEST(Tuning, ASlowRivalDoesNotEatTheBudget) {
  // Half a second for the good one at 64 MiB; the bad one would take 20 s, and its price says 1.
  MadeUp machine;
  machine.names = {"ring", "rabenseifner"};
  machine.price = linear({{"rabenseifner", 2}});
  machine.time = [](const std::string& name, std::size_t bytes) {
    return (1e-6 + 8e-9 * static_cast<double>(bytes)) * (name == "ring" ? 1 : 40);
  };
  const MeasuredChoices found =
      must(measure_choices(machine.trial(), thorough(std::size_t{1} << 20, std::size_t{64} << 20, 60)));
  EXPECT_FALSE(machine.ran("rabenseifner", std::size_t{64} << 20));
  EXPECT_LE(machine.spent, 20);
  EXPECT_TRUE(found.complete) << "the choice by price stays, since nobody is left to beat it";
}

TEST(Tuning, APairThatIsDisturbedTakesLittleFromTheOthers) {
  MadeUp machine;
  machine.names = {"ring", "knomial"};
  machine.price = linear({});
  machine.time = [&machine](const std::string& name, std::size_t bytes) {
    // As in the first round, and then a hundred times that for as long as the size is 4.
    const bool disturbed = bytes == 4 && machine.runs[{name, bytes}] > 2;
    return (name == "knomial" ? 0.5e-6 : 1e-6) * (disturbed ? 100 : 1);
  };
  const MeasuredChoices found = must(measure_choices(machine.trial(), thorough(4, 32, 0.4)));
  EXPECT_FALSE(found.sizes[0].decided);
  for (int i = 1; i < 4; ++i)
    EXPECT_TRUE(found.sizes[static_cast<std::size_t>(i)].decided) << i;
  EXPECT_EQ(found.tuning.rules.size(), 1U);
}

TEST(Tuning, AFailureSaysWhatWasTimed) {
  MadeUp machine;
  machine.price = linear({});
  machine.time = linear({});
  ChoiceTrial trial = machine.trial();
  trial.time = [](Collective, const Choice&, std::size_t, int) -> Result<Timing> {
    return Status(Code::timeout, "rank 1 did not take part within 5.0 s (HEDDLE_TIMEOUT)");
  };
  const Result<MeasuredChoices> found = measure_choices(trial, thorough(2048, 4096));
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.status().code(), Code::timeout);
  EXPECT_NE(found.status().message().find("allreduce of 2048 bytes by ring"), std::string::npos);
  EXPECT_NE(found.status().message().find("HEDDLE_TIMEOUT"), std::string::npos);
}

TEST(Tuning, ProgressRunsThroughAllPairs) {
  MadeUp machine;
  machine.names = {"double_binary_tree", "knomial"};
  machine.price = machine.time = linear({});
  SearchPlan plan = thorough(4, 16);
  plan.collectives = {kBcast, kAllreduce};
  std::set<std::size_t> done;
  double spent = 0;
  plan.progress = [&](const TrialProgress& at) {
    EXPECT_EQ(at.total, 6U);
    EXPECT_GE(at.spent_s, spent);
    EXPECT_EQ(at.budget_s, 100);
    EXPECT_EQ(at.collective, at.done % 2 == 0 ? kBcast : kAllreduce);
    spent = at.spent_s;
    done.insert(at.done);
  };
  must(measure_choices(machine.trial(), plan));
  EXPECT_EQ(done, (std::set<std::size_t>{0, 1, 2, 3, 4, 5}));
}

// ---- On communicators

SearchPlan real(std::size_t most) {
  SearchPlan plan;
  plan.collectives = {kAllreduce, kBcast};
  plan.sizes = every_class(4, most);
  plan.budget = std::chrono::milliseconds(500);
  plan.thorough = true;
  return plan;
}

// All ranks hear of the one that was without its core for longest.
TEST(TryAll, TellsOfRanksWithoutTheirCores) {
  for (const bool lacking : {false, true}) {
    Party party({1, 1});
    for (int rank = 0; rank < 2; ++rank) {
      party.processes.push_back(std::make_shared<ProcessState>());
      const double step = lacking && rank == 1 ? 0 : 1e6;
      party.processes.back()->core_seconds = [step, seconds = 0.0]() mutable { return seconds += step; };
    }
    party.run(quiet(), [&](Rank&, Communicator& comm) {
      const Result<MeasuredChoices> found = comm.try_all(real(64));
      ASSERT_TRUE(found.ok()) << found.status().message();
      EXPECT_EQ(found->without_core, lacking ? 1 : 0);
    });
  }
}

// Two nodes of two ranks, of one, and one node.
TEST(TryAll, RunsWhatTheSelectorSuggestsOnAnyNodes) {
  const std::vector<std::vector<std::uint64_t>> placements = {{1, 2}, {1, 1, 2, 2}, {1, 1, 1}};
  for (const std::vector<std::uint64_t>& nodes : placements) {
    Party party(nodes);
    std::vector<std::string> rules(nodes.size());
    party.run(quiet(), [&](Rank& me, Communicator& comm) {
      const Result<MeasuredChoices> found = comm.try_all(real(std::size_t{64} << 10));
      ASSERT_TRUE(found.ok()) << found.status().message();
      rules[static_cast<std::size_t>(me.rank)] = write_tuning(found->tuning, "");
      int timed = 0;
      for (const TriedSize& tried : found->sizes) {
        ASSERT_FALSE(tried.candidates.empty());
        const TriedCandidate& first = tried.candidates.front();
        EXPECT_STREQ(first.choice.algorithm->name, comm.algorithm(tried.collective, tried.size.bytes))
            << tried.size.bytes;
        EXPECT_GT(first.choice.price_ns, 0);
        EXPECT_EQ(first.seconds > 0, first.outcome != TrialOutcome::no_time);
        timed += first.seconds > 0 ? 1 : 0;
      }
      EXPECT_GT(timed, 0);
      for (const TuningRule& rule : found->tuning.rules) {
        EXPECT_EQ(rule.ranks[0], comm.size());
        EXPECT_EQ(rule.nodes[1], comm.topology().nodes());
      }
      // It is of use afterwards.
      std::vector<std::int64_t> data = terms(me.rank, 3000, 1);
      ASSERT_TRUE(comm.allreduce(data.data(), data.data(), data.size(), DType::i64, Op::sum).ok());
      EXPECT_EQ(data, sums(me.size, 3000, 1));
    });
    for (const std::string& text : rules)
      EXPECT_EQ(text, rules[0]) << "the same on all ranks";
  }
}

TEST(TryAll, OneRankHasNothingToChoose) {
  Party party({1});
  party.run(quiet(), [](Rank&, Communicator& comm) {
    EXPECT_EQ(comm.try_all(real(64)).status().code(), Code::invalid_argument);
  });
}

TEST(TryAll, MemoryThatIsMissingIsSaidBeforeAnythingRuns) {
  Party party({1, 1});
  party.run(quiet(), [](Rank&, Communicator& comm) {
    SearchPlan plan = real(64);
    plan.sizes.push_back({std::size_t{1} << 62, 1, 2});
    EXPECT_EQ(comm.try_all(plan).status().code(), Code::out_of_memory);
    EXPECT_TRUE(comm.barrier().ok());
  });
}

}  // namespace
}  // namespace heddle::test
