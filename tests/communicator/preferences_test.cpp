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
  ASSERT_NE(p.forced_for(Collective::allreduce), nullptr);
  ASSERT_NE(p.forced_for(Collective::bcast), nullptr);
  ASSERT_NE(p.forced_for(Collective::reduce), nullptr);
  EXPECT_STREQ(p.forced_for(Collective::allreduce)->name, "double_binary_tree");
  EXPECT_TRUE(p.complaints.empty());
  EXPECT_EQ(with_algorithm("ring").forced_for(Collective::bcast), nullptr);
  ASSERT_NE(with_algorithm("ring").forced_for(Collective::allgather), nullptr);
}

TEST(Preferences, AScopedNameForcesOne) {
  const Preferences p = with_algorithm("allreduce:ring,bcast:chain,reduce:knomial,allgather:bruck");
  EXPECT_STREQ(p.forced_for(Collective::allreduce)->name, "ring");
  EXPECT_STREQ(p.forced_for(Collective::bcast)->name, "chain");
  EXPECT_STREQ(p.forced_for(Collective::reduce)->name, "knomial");
  ASSERT_NE(p.forced_for(Collective::allgather), nullptr);
  EXPECT_STREQ(p.forced_for(Collective::allgather)->name, "bruck");
  const Preferences one = with_algorithm("allgather:ring");
  ASSERT_NE(one.forced_for(Collective::allgather), nullptr);
  EXPECT_STREQ(one.forced_for(Collective::allgather)->name, "ring");
  EXPECT_EQ(one.forced_for(Collective::allgather)->collective, Collective::allgather);
  EXPECT_EQ(one.forced_for(Collective::allreduce), nullptr);
  EXPECT_TRUE(one.complaints.empty());
  EXPECT_TRUE(p.complaints.empty());
}

TEST(Preferences, WrongNamesAreReportedWithTheKnownOnes) {
  const std::pair<const char*, const char*> wrong[] = {
      {"rind", " is not an algorithm (the nearest is ring); choosing as without it. Known: allreduce: "},
      {"bcast:ring", " is not an algorithm of bcast; choosing as without it. Known: bcast: "},
      {"bcast:chian", " is not an algorithm (the nearest is chain); choosing as without it. Known: bcast: "},
      {"sparse:bitmap",
       " is not an algorithm (the nearest is bitmaps); choosing as without it. Known: sparse: "},
      {"bitmaps", " is not an algorithm; choosing as without it. Known: allreduce: "},
      {"reduce:ring", " is not an algorithm of reduce; choosing as without it. Known: reduce: "},
      {"allgather:chain", " is not an algorithm of allgather; choosing as without it. Known: allgather: "},
      {"scan:ring", " is not an algorithm; choosing as without it. Known: allreduce: "},
      {"allreduce:", " is not an algorithm (the nearest is "},
      {":", " is not an algorithm (the nearest is "},
  };
  for (const auto& [text, says] : wrong) {
    const Preferences p = with_algorithm(text);
    EXPECT_EQ(p.forced_for(Collective::allreduce), nullptr) << text;
    EXPECT_EQ(p.forced_for(Collective::bcast), nullptr) << text;
    ASSERT_EQ(p.complaints.size(), 1U) << text;
    EXPECT_EQ(p.complaints[0].find(std::string("HEDDLE_ALGORITHM=\"") + text + "\"" + says), 0U)
        << p.complaints[0];
  }
}

TEST(Preferences, AWrongNameDoesNotSpoilTheOthers) {
  const Preferences p = with_algorithm("allreduce:ring,bcast:nonsense");
  EXPECT_STREQ(p.forced_for(Collective::allreduce)->name, "ring");
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
    {"collective": "bcast", "algorithm": "knomial", "radix": 5},
    {"collective": "reduce", "algorithm": "knomial", "radix": 3},
    {"collective": "allgather", "algorithm": "bruck", "radix": 4, "bytes": [8, 15]}], "streamed_results_from": 123456})");
  const auto tuning = read_tuning_file(file.path());
  ASSERT_TRUE(tuning.ok()) << tuning.status().message();
  const std::vector<TuningRule>& rules = tuning->rules;
  ASSERT_EQ(rules.size(), 4U);
  EXPECT_EQ(rules[3].collective, Collective::allgather);
  EXPECT_EQ(rules[3].algorithm->collective, Collective::allgather);
  EXPECT_EQ(rules[3].shape.radix, 4);
  EXPECT_EQ(rules[2].collective, Collective::reduce);
  EXPECT_EQ(rules[2].algorithm->collective, Collective::reduce);
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
      {"", "is not JSON (line 1, column 1)"},
      {"{", "is not JSON (line 1, column 2)"},
      {"{\"version\": 1,\n \"rules\": [}", "is not JSON (line 2, column 12)"},
      {"[]", "\"version\": 1"},
      {"null", "\"version\": 1"},
      {R"({"version": 2, "rules": []})", "\"version\" must be 1, the only one that this heddle reads, not 2"},
      {R"({"version": 1})", "\"rules\""},
      {R"({"version": 1, "rules": {}})", "\"rules\""},
      {R"({"version": 1, "rules": [7]})", "rule 1: is not an object"},
      {R"({"version": 1, "rules": [], "streamed_results_from": -1})",
       "\"streamed_results_from\" must be a number of bytes or \"never\", not -1"},
      {R"({"version": 1, "rules": [], "streamed_results_from": "now"})", "\"streamed_results_from\" must be"},
      {R"({"version": 1, "rules": [], "found_once": 1})", "\"found_once\" must be true or false, not 1"},
      {R"({"version": 1, "rules": [{"collective": "gather", "algorithm": "ring"}]})",
       "\"collective\" must be one of allreduce, bcast, reduce, allgather, not \"gather\""},
      {R"({"version": 1, "rules": [{"collective": 3}]})", "\"collective\" must be"},
      {R"({"version": 1, "rules": [{"collective": "bcast", "algorithm": "ring"}]})", ", not \"ring\""},
      {R"({"version": 1, "rules": [{"collective": "bcast"}]})", ", and is missing"},
      {R"({"version": 1, "rules": [{"collective": "allreduce", "algorithm": "ring", "bytes": 5}]})",
       "\"bytes\" must be [least, most], not 5"},
      {R"({"version": 1, "rules": [{"collective": "allreduce", "algorithm": "ring", "ranks": [1, "x"]}]})",
       "\"ranks\" must be [least, most]"},
      {R"({"version": 1, "rules": [{"collective": "allreduce", "algorithm": "ring", "chunks": 0}]})",
       "\"chunks\" must be an integer from 1 to 65536, not 0"},
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
    EXPECT_EQ(p.complaints[0].find(std::string("HEDDLE_TUNING_FILE is not used: ") + path), 0U);
    EXPECT_EQ(p.complaints[0].find(path), p.complaints[0].rfind(path)) << p.complaints[0];
    EXPECT_NE(p.complaints[0].find("; choosing as without it"), std::string::npos);
  }
}

TEST(TuningFiles, ARuleDecidesWhereItMatches) {
  const TuningFile file(R"({"version": 1, "rules": [
    {"collective": "allreduce", "algorithm": "knomial", "bytes": [0, 4095]},
    {"collective": "allreduce", "algorithm": "double_binary_tree", "ranks": [3, 3], "chunks": 5},
    {"collective": "allgather", "algorithm": "bruck", "bytes": [0, 4095]},
    {"collective": "allgather", "algorithm": "ring"}]})");
  Party party({1, 2, 3});
  Config config = quiet();
  config.tuning_file = file.path();
  party.run(config, [](Rank& me, Communicator& comm) {
    EXPECT_STREQ(comm.algorithm(Collective::allreduce, 100), "knomial");
    EXPECT_STREQ(comm.algorithm(Collective::allreduce, 100'000), "double_binary_tree");
    std::vector<std::int64_t> data = terms(me.rank, 20'000, 1);
    ASSERT_TRUE(comm.allreduce(data.data(), data.data(), data.size(), DType::i64, Op::sum).ok());
    EXPECT_EQ(data, sums(3, 20'000, 1));
    // Bytes of each rank: 2,000 are 6,000 in all.
    EXPECT_STREQ(comm.algorithm(Collective::allgather, 2000), "bruck");
    EXPECT_STREQ(comm.algorithm(Collective::allgather, 5000), "ring");
    for (const std::size_t count : {250, 20'000}) {
      const std::vector<std::int64_t> own = terms(me.rank, count, 1);
      std::vector<std::int64_t> all(3 * count);
      ASSERT_TRUE(comm.allgather(own.data(), all.data(), count * 8).ok());
      EXPECT_EQ(all, terms_of_all(3, count, 1));
    }
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

}  // namespace
}  // namespace heddle::test
