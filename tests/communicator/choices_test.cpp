// What a communicator tries when it is made, and what it keeps of that for the next one.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/choice_cache.hpp"
#include "comm/measured_choices.hpp"
#include "comm/streamed_results.hpp"
#include "communicator/party.hpp"
#include "setup/core_claim.hpp"

namespace heddle::test {
namespace {

namespace fs = std::filesystem;

constexpr Collective kAllreduce = Collective::allreduce;

Choice named(const char* name) {
  return {find_algorithm(kAllreduce, name), Shape{}, 0};
}

// ---- Trying, with times that are made up

struct MadeUpMachine {
  std::map<std::string, double> microseconds;  // of one collective, by algorithm
  std::vector<const char*> names = {"team", "ring", "knomial"};
  int calls = 0;
  int fails_at = -1;
  std::map<std::string, int> slow_at_first = {};  // that many timings of it take ten times as long

  ChoiceTrial trial() {
    ChoiceTrial t;
    t.candidates = [this](Collective, std::size_t) {
      std::vector<Choice> all;
      for (const char* name : names)
        all.push_back(named(name));
      return all;
    };
    t.time = [this](Collective, const Choice& choice, std::size_t, int times) -> Result<Timing> {
      if (calls++ == fails_at) return Status(Code::peer_failed, "rank 1 is gone");
      const bool slow = slow_at_first[choice.algorithm->name]-- > 0;
      const double one = microseconds.at(choice.algorithm->name) * 1e-6 * (slow ? 10 : 1);
      return Timing{one * times, one * (times + 1)};
    };
    return t;
  }
};

SearchPlan plan_of(std::int32_t ranks, std::vector<Collective> collectives = {kAllreduce}) {
  SearchPlan plan;
  plan.ranks = ranks;
  plan.collectives = std::move(collectives);
  return plan;
}

std::string winner_of(MadeUpMachine machine) {
  const Result<MeasuredChoices> found = measure_choices(machine.trial(), plan_of(4));
  if (!found.ok()) return found.status().message();
  std::string name;
  for (const TuningRule& rule : found->tuning.rules) {
    if (!name.empty() && name != rule.algorithm->name) return "mixed";
    name = rule.algorithm->name;
  }
  return name;
}

TEST(MeasuredChoices, TheFastestWinsAndTheFirstWinsTies) {
  EXPECT_EQ(winner_of({{{"team", 3}, {"ring", 1}, {"knomial", 2}}}), "ring");
  EXPECT_EQ(winner_of({{{"team", 3}, {"ring", 2}, {"knomial", 1}}}), "knomial");
  EXPECT_EQ(winner_of({{{"team", 1}, {"ring", 1}, {"knomial", 1}}}), "team");
  EXPECT_EQ(winner_of({{{"team", 1}, {"ring", 0.95}, {"knomial", 0.96}}}), "team") << "not worth it";
  EXPECT_EQ(winner_of({{{"team", 1}, {"ring", 0.9}, {"knomial", 0.96}}}), "ring");
}

TEST(MeasuredChoices, WhatIsSlowAtFirstIsNotJudgedByThat) {
  MadeUpMachine machine{{{"team", 1}, {"ring", 1.2}, {"knomial", 9}}};
  machine.slow_at_first["team"] = 6;
  EXPECT_EQ(winner_of(machine), "team");
}

// Something else kept the first one from its core all through the final.
TEST(MeasuredChoices, WhoWinsMustWinAgain) {
  MadeUpMachine machine{{{"team", 1}, {"ring", 1.2}, {"knomial", 9}}};
  machine.slow_at_first["team"] = 8;
  EXPECT_EQ(winner_of(machine), "team");
  machine.slow_at_first["team"] = 8 + 7;
  EXPECT_EQ(winner_of(machine), "mixed") << "or this test looks at nothing";
}

TEST(MeasuredChoices, WhatOneSearchAloneHasFoundIsNotConfirmed) {
  const SearchPlan plan = plan_of(4);
  const auto search = [&](MadeUpMachine machine) { return measure_choices(machine.trial(), plan).value(); };
  const MeasuredChoices as_usual = search({{{"team", 1}, {"ring", 2}, {"knomial", 2}}});
  const MeasuredChoices by_ring = search({{{"team", 3}, {"ring", 1}, {"knomial", 2}}});
  const MeasuredChoices by_knomial = search({{{"team", 3}, {"ring", 2}, {"knomial", 1}}});
  EXPECT_FALSE(anything_won(as_usual));
  EXPECT_TRUE(anything_won(by_ring));
  const auto confirmed = [&](MeasuredChoices later, const Tuning& earlier) {
    confirm(later, plan, earlier);
    std::vector<std::string> names;
    for (const TuningRule& rule : later.tuning.rules)
      names.emplace_back(rule.algorithm->name);
    return names;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(confirmed(by_ring, by_ring.tuning), Names{"ring"});
  EXPECT_EQ(confirmed(by_ring, by_knomial.tuning), Names{"team"});
  EXPECT_EQ(confirmed(by_ring, as_usual.tuning), Names{"team"});
  EXPECT_EQ(confirmed(as_usual, by_ring.tuning), Names{"team"});
  Tuning of_few_bytes = by_ring.tuning;
  of_few_bytes.rules[0].bytes[1] = 2047;
  EXPECT_EQ(confirmed(by_ring, of_few_bytes), (Names{"ring", "team"}));
}

TEST(MeasuredChoices, RulesCoverEverySizeOnce) {
  MadeUpMachine machine{{{"team", 1}, {"ring", 2}, {"knomial", 2}}};
  const Result<MeasuredChoices> found =
      measure_choices(machine.trial(), plan_of(7, {kAllreduce, Collective::bcast}));
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(found->complete);
  std::map<Collective, std::int64_t> next;
  for (const TuningRule& rule : found->tuning.rules) {
    EXPECT_EQ(rule.bytes[0], next[rule.collective]);
    EXPECT_EQ(rule.ranks[0], 7);
    EXPECT_EQ(rule.ranks[1], 7);
    EXPECT_EQ(rule.nodes[1], 1);
    next[rule.collective] = rule.bytes[1] == INT64_MAX ? -1 : rule.bytes[1] + 1;
    // The size class that ends here must not have sizes of the next rule.
    if (rule.bytes[1] != INT64_MAX) {
      EXPECT_EQ((rule.bytes[1] + 1) & rule.bytes[1], 0);
    }
  }
  EXPECT_EQ(next[kAllreduce], -1);
  EXPECT_EQ(next[Collective::bcast], -1);
}

TEST(MeasuredChoices, StopWhenTheTimeIsOver) {
  MadeUpMachine machine{{{"team", 1000}, {"ring", 1000}, {"knomial", 1000}}};
  const Result<MeasuredChoices> found = measure_choices(machine.trial(), plan_of(4));
  ASSERT_TRUE(found.ok());
  EXPECT_FALSE(found->complete);
  EXPECT_LT(found->tuning.rules.size(), 8U);
  EXPECT_GE(found->tuning.rules.size(), 1U);
  // Each timing is of one collective and one before it: 2 ms.
  EXPECT_LE(machine.calls, 77);
}

TEST(MeasuredChoices, AFailureEndsIt) {
  for (const int at : {0, 5, 30}) {
    MadeUpMachine machine{{{"team", 1}, {"ring", 1}, {"knomial", 1}}};
    machine.fails_at = at;
    const Result<MeasuredChoices> found = measure_choices(machine.trial(), plan_of(4));
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.status().code(), Code::peer_failed);
    EXPECT_EQ(machine.calls, at + 1);
    EXPECT_NE(found.status().message().find(" bytes by "), std::string::npos) << found.status().message();
  }
}

// ---- Streaming

// Streaming pays from `from` bytes on, and takes twice the time below.
Result<std::size_t> found_streaming(std::size_t from, double read_at_once, int fails_at = -1) {
  int calls = 0;
  return measure_streaming({[&](std::size_t bytes, bool streamed, bool reads) -> Result<double> {
    if (calls++ == fails_at) return Status(Code::peer_failed, "rank 1 is gone");
    const double seconds = !streamed ? 1 : bytes >= from ? 0.8 : 2;
    return seconds + (reads && streamed ? read_at_once : 0);
  }});
}

TEST(Streaming, StartsWhereItPays) {
  constexpr double kNothing = 0;
  EXPECT_EQ(found_streaming(1 << 20, kNothing).value(), std::size_t{1} << 20);
  EXPECT_EQ(found_streaming(3 << 20, kNothing).value(), std::size_t{4} << 20);
  EXPECT_EQ(found_streaming(std::size_t{1} << 40, kNothing).value(), SIZE_MAX);
  EXPECT_EQ(found_streaming(0, kNothing).value(), std::size_t{256} << 10) << "the least that is tried";
}

TEST(Streaming, WhatReadingAtOnceLosesCountsAsMuchAsWhatItGainsElsewhere) {
  EXPECT_EQ(found_streaming(0, 0.3).value(), std::size_t{256} << 10);
  EXPECT_EQ(found_streaming(0, 0.5).value(), SIZE_MAX);
}

TEST(Streaming, AFailureEndsIt) {
  EXPECT_EQ(found_streaming(0, 0, 7).status().code(), Code::peer_failed);
}

// ---- Keeping

class Folder : public ::testing::Test {
 protected:
  Folder() {
    char name[] = "/tmp/heddle-choices-XXXXXX";
    path = mkdtemp(name);
  }
  ~Folder() override {
    std::error_code error;
    fs::remove_all(path, error);
  }
  std::string only_file() const {
    std::string found;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path)) {
      if (!entry.is_regular_file()) continue;
      EXPECT_EQ(found, "") << "more than one file";
      found = entry.path().string();
    }
    return found;
  }
  std::string path;
};
using KeptChoices = Folder;

TEST_F(KeptChoices, ComeBack) {
  const ChoiceCache cache(path + "/not/there/yet");
  EXPECT_FALSE(cache.load("a")->has_value());
  TuningRule rule;
  rule.algorithm = find_algorithm(kAllreduce, "ring");
  rule.bytes[0] = 100;
  rule.shape.chunks = 4;
  rule.shape.leaders = 3;
  ASSERT_TRUE(cache.save("a", {{rule}, 4096}).ok());
  ASSERT_TRUE(cache.save("a", {{rule, rule}, SIZE_MAX}).ok()) << "again";
  const auto found = cache.load("a");
  ASSERT_TRUE(found.ok()) << found.status().message();
  ASSERT_TRUE(found->has_value());
  EXPECT_EQ(found.value()->streamed_from, SIZE_MAX);
  ASSERT_EQ(found.value()->rules.size(), 2U);
  const TuningRule& back = found.value()->rules[0];
  EXPECT_STREQ(back.algorithm->name, "ring");
  EXPECT_EQ(back.bytes[0], 100);
  EXPECT_EQ(back.bytes[1], INT64_MAX);
  EXPECT_EQ(back.shape.chunks, 4U);
  EXPECT_EQ(back.shape.leaders, 3U);
  EXPECT_FALSE(cache.load("b")->has_value());
  EXPECT_TRUE(read_tuning_file(only_file()).ok()) << "it is a tuning file";
}

TEST_F(KeptChoices, ADamagedOrForeignFileIsNamed) {
  const ChoiceCache cache(path);
  ASSERT_TRUE(cache.save("a", {}).ok());
  const std::string file = cache.path_of("a");
  fs::copy_file(file, cache.path_of("b"));
  const auto foreign = cache.load("b");
  EXPECT_NE(foreign.status().message().find(cache.path_of("b")), std::string::npos);
  EXPECT_NE(foreign.status().message().find("another machine"), std::string::npos)
      << foreign.status().message();
  for (const char* text : {"", "{", "[]", "{\"version\": 1, \"made_for\": \"a\", \"rules\": [{}]}"}) {
    std::ofstream(file) << text;
    const auto damaged = cache.load("a");
    ASSERT_FALSE(damaged.ok()) << text;
    EXPECT_NE(damaged.status().message().find(file), std::string::npos);
  }
  fs::remove(file);
  fs::create_directory(file);
  EXPECT_FALSE(cache.load("a").ok()) << "a folder";
}

TEST_F(KeptChoices, AFolderThatCannotBeMadeIsNamed) {
  std::ofstream(path + "/file") << "x";
  const Status status = ChoiceCache(path + "/file/folder").save("a", {});
  EXPECT_NE(status.message().find(path + "/file/folder"), std::string::npos) << status.message();
  EXPECT_FALSE(ChoiceCache("").save("a", {}).ok());
  EXPECT_FALSE(ChoiceCache("").load("a")->has_value());
}

// ---- A communicator

class MeasuringCommunicator : public Folder {
 protected:
  void SetUp() override {
    if (!each_has_a_core({core_claim(), core_claim()})) GTEST_SKIP() << "needs two cores";
  }
  using Processes = std::vector<std::shared_ptr<ProcessState>>;
  // Of two ranks that have their cores all the time, whatever else this machine does, or for a part of it.
  static Processes processes_with(double rank_0_share, double rank_1_share) {
    Processes all;
    for (const double share : {rank_0_share, rank_1_share}) {
      all.push_back(std::make_shared<ProcessState>());
      all.back()->core_seconds = [share] { return share * seconds_since(TimePoint()); };
    }
    return all;
  }
  // Until nothing is left to confirm, which the first job may leave to the second.
  void make_until_kept() {
    const bool again = make().find("to confirm") != std::string::npos;
    if (again) make();
  }
  // What rank 0 says of itself; the choices must work whatever they are.
  std::string make(const Processes& processes = processes_with(1, 1), bool single_copy = false) {
    Config config = quiet();
    config.measure = true;
    config.cache_folder = path;
    config.single_copy = single_copy;
    Party party({1, 1});
    party.processes = processes;
    std::string said;
    party.run(config, [&](Rank& me, Communicator& comm) {
      if (me.rank == 0) said = comm.describe();
      for (const std::size_t count : {1, 100, 3000, 200'000}) {
        std::vector<std::int64_t> data = terms(me.rank, count, 1);
        ASSERT_TRUE(comm.allreduce(data.data(), data.data(), count, DType::i64, Op::sum).ok());
        ASSERT_EQ(data, sums(me.size, count, 1));
      }
    });
    return said;
  }
};

TEST_F(MeasuringCommunicator, MeasuresOnceAndKeepsIt) {
  const std::string first = make();
  EXPECT_NE(first.find("measured in"), std::string::npos) << first;
  const std::string file = only_file();
  ASSERT_NE(file, "");
  EXPECT_NE(first.find(file), std::string::npos) << first;
  if (first.find("to confirm") != std::string::npos) make_until_kept();
  const std::string later = make();
  EXPECT_NE(later.find("measured before (" + file), std::string::npos) << later;
}

TEST_F(MeasuringCommunicator, WhatOneJobHasFoundTheNextOneMeasuresAgain) {
  make_until_kept();
  std::string text = tuning_text(only_file()).value();
  const std::size_t key = text.find("\"made_for\"");
  ASSERT_NE(key, std::string::npos);
  text = "{" + text.substr(key, text.find('\n', key) - key) +
         R"( "version": 1, "found_once": true, "rules": [{"collective": "allreduce", "algorithm": "ring"}]})";
  std::ofstream(only_file()) << text;
  const Processes processes = processes_with(1, 1);
  const std::string second = make(processes);
  EXPECT_NE(second.find("measured in"), std::string::npos) << second;
  EXPECT_EQ(second.find("to confirm"), std::string::npos) << second;
  EXPECT_EQ(make(processes).find("measured in"), std::string::npos) << "this process has it";
  EXPECT_EQ(tuning_text(only_file()).value().find("found_once"), std::string::npos);
  EXPECT_NE(make().find("measured before"), std::string::npos);
}

// It would be wrong for all jobs to come.
TEST_F(MeasuringCommunicator, WhatWasMeasuredOnABusyMachineServesThisProcessAlone) {
  EXPECT_NE(make(processes_with(1, 0.95)).find(", kept in "), std::string::npos);
  fs::remove(only_file());
  const Processes busy = processes_with(1, 0.75);
  const std::string said = make(busy);
  EXPECT_NE(said.find(", not kept: a rank was without its core for 2"), std::string::npos) << said;
  EXPECT_EQ(only_file(), "");
  EXPECT_EQ(make(busy).find("measured in"), std::string::npos) << "this process has it";
  EXPECT_NE(make().find("measured in"), std::string::npos) << "another one";
}

TEST(CoreSeconds, AreTheCallingThreadsOwn) {
  const TimePoint began = std::chrono::steady_clock::now();
  const double before = ProcessState().core_seconds();
  double now = before;
  while (now - before < 0.01)
    now = ProcessState().core_seconds();
  EXPECT_LE(now - before, seconds_since(began) * 1.01);
  std::thread([] { EXPECT_LT(ProcessState().core_seconds(), 0.01); }).join();
}

// Which algorithms are the fastest depends on it.
TEST_F(MeasuringCommunicator, KeepsChoicesWithBcastsCopiedOnceApart) {
  const std::string through_slots = make();
  const std::string once = make(processes_with(1, 1), true);
  const bool is_kept = once.find("to confirm") == std::string::npos;
  EXPECT_EQ(through_slots.find("copied once"), std::string::npos) << through_slots;
  EXPECT_NE(once.find("bcasts of 8 to 64 KiB copied once"), std::string::npos) << once;
  EXPECT_NE(once.find("measured in"), std::string::npos) << once;
  EXPECT_EQ(make(processes_with(1, 1), true).find("measured before") != std::string::npos, is_kept);
}

TEST_F(MeasuringCommunicator, WhatIsKeptDecides) {
  make();
  const std::string file = only_file();
  std::string text = tuning_text(file).value();
  EXPECT_NE(text.find("streamed_results_from"), std::string::npos);
  const std::size_t key = text.find("\"made_for\"");
  ASSERT_NE(key, std::string::npos);
  text = "{" + text.substr(key, text.find('\n', key) - key) +
         R"( "version": 1, "rules": [{"collective": "allreduce", "algorithm": "knomial"}]})";
  std::ofstream(file) << text;
  Config config = quiet();
  config.measure = true;
  config.cache_folder = path;
  config.single_copy = false;  // as when they were measured
  Party party({1, 1});
  party.run(config, [](Rank&, Communicator& comm) {
    EXPECT_STREQ(comm.algorithm(kAllreduce, 8), "knomial");
    EXPECT_STREQ(comm.algorithm(Collective::barrier, 0), "team");
  });
}

TEST_F(MeasuringCommunicator, ADamagedFileIsReplaced) {
  make();
  const std::string file = only_file();
  std::ofstream(file) << "not JSON";
  EXPECT_NE(make().find("measured in"), std::string::npos);
  make_until_kept();
  EXPECT_NE(make().find("measured before"), std::string::npos);
}

TEST_F(MeasuringCommunicator, WithoutAFolderTheProcessRemembers) {
  fs::remove(path);
  std::ofstream(path) << "a file where the folder should be";
  const Processes processes = processes_with(1, 1);
  EXPECT_NE(make(processes).find("not kept"), std::string::npos);
  EXPECT_EQ(make(processes).find("measured in"), std::string::npos);
}

TEST_F(MeasuringCommunicator, RanksThatShareACoreGoByPrice) {
  Config config = quiet();
  config.measure = true;
  config.cache_folder = path;
  Party party(std::vector<std::uint64_t>(static_cast<std::size_t>(cores_of({core_claim()})) + 1, 1));
  party.run(config, [](Rank& me, Communicator& comm) {
    if (me.rank != 0) return;
    EXPECT_EQ(comm.describe().find("measured"), std::string::npos) << comm.describe();
  });
  EXPECT_EQ(only_file(), "");
}

}  // namespace
}  // namespace heddle::test
