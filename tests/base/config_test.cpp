#include "base/config.hpp"
#include "base/config_rows.hpp"
#include "base/text.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

namespace heddle {
namespace {

using std::chrono::milliseconds;

TEST(Config, WhatComesBeforeReproducibleSumsIsSaid) {
  const ParsedConfig parsed =
      parse_config({"HEDDLE_REPRODUCIBLE=1", "HEDDLE_ALGORITHM=allreduce:ring", "HEDDLE_COMPRESS=fp16"});
  ASSERT_EQ(parsed.complaints.size(), 2U);
  EXPECT_EQ(parsed.complaints[0].rfind("HEDDLE_ALGORITHM=\"allreduce:ring\" comes before", 0), 0U)
      << parsed.complaints[0];
  EXPECT_EQ(parsed.complaints[1].rfind("HEDDLE_COMPRESS=\"fp16\" comes before", 0), 0U)
      << parsed.complaints[1];
  const ParsedConfig alone = parse_config({"HEDDLE_REPRODUCIBLE=1", "HEDDLE_SPARSE=1"});
  EXPECT_TRUE(alone.complaints.empty());
  EXPECT_TRUE(alone.config.reproducible);
  EXPECT_FALSE(alone.config.sparse);
  EXPECT_TRUE(parse_config({"HEDDLE_ALGORITHM=allreduce:ring"}).complaints.empty());
}

TEST(Config, EmptyEnvironmentGivesDefaults) {
  const ParsedConfig parsed = parse_config({"PATH=/bin", "HEDDLE", "NOT_HEDDLE_LOG=x"});
  EXPECT_TRUE(parsed.complaints.empty());
  EXPECT_TRUE(parsed.config.enable);
  EXPECT_EQ(parsed.config.log_level, LogLevel::warn);
  EXPECT_EQ(parsed.config.timeout, milliseconds(0));
  EXPECT_EQ(parsed.config.warn_after, milliseconds(10'000));
  EXPECT_EQ(parsed.config.slot_bytes, 0U);
  EXPECT_EQ(parsed.config.master_port, 0);
}

TEST(Config, EveryVariableIsParsed) {
  const ParsedConfig parsed = parse_config({"HEDDLE_ENABLE=0",
                                            "HEDDLE_LOG=debug",
                                            "HEDDLE_ALGORITHM=allreduce:ring,bcast:team",
                                            "HEDDLE_TUNING_FILE=/a=b.json",
                                            "HEDDLE_TRANSPORTS=mpi",
                                            "HEDDLE_TIMEOUT=2.5",
                                            "HEDDLE_WARN_AFTER=0",
                                            "HEDDLE_SLOT_BYTES=256K",
                                            "HEDDLE_SPIN=100",
                                            "HEDDLE_SHM=Posix",
                                            "HEDDLE_ALLOC_MEM=0",
                                            "HEDDLE_MASTER_PORT=29501",
                                            "HEDDLE_VERBS_DEVICE=mlx5_0:1",
                                            "HEDDLE_VERBS_GID=3",
                                            "HEDDLE_TCP_PORTS=20000-20099",
                                            "HEDDLE_VERBS_TIMEOUT=7.5",
                                            "HEDDLE_VERBS_ODP=1",
                                            "HEDDLE_VERBS_TRAFFIC_CLASS=104",
                                            "HEDDLE_VERBS_SL=3",
                                            "HEDDLE_VERBS_PKEY=0x8002",
                                            "HEDDLE_MEASURE=0",
                                            "HEDDLE_SINGLE_COPY=1",
                                            "HEDDLE_SPARSE=1",
                                            "HEDDLE_CACHE=/some/where",
                                            "HEDDLE_PROGRESS_THREAD=Always"});
  EXPECT_TRUE(parsed.complaints.empty()) << parsed.complaints.front();
  EXPECT_FALSE(parsed.config.enable);
  EXPECT_EQ(parsed.config.log_level, LogLevel::debug);
  EXPECT_EQ(parsed.config.algorithm, "allreduce:ring,bcast:team");
  EXPECT_EQ(parsed.config.tuning_file, "/a=b.json");
  EXPECT_EQ(parsed.config.transports, "mpi");
  EXPECT_EQ(parsed.config.timeout, milliseconds(2500));
  EXPECT_EQ(parsed.config.warn_after, milliseconds(0));
  EXPECT_EQ(parsed.config.slot_bytes, 256U * 1024);
  EXPECT_EQ(parsed.config.spin, 100);
  EXPECT_EQ(parsed.config.shm_backing, "posix");
  EXPECT_FALSE(parsed.config.alloc_mem);
  EXPECT_EQ(parsed.config.master_port, 29501);
  EXPECT_EQ(parsed.config.verbs_device, "mlx5_0:1");
  EXPECT_TRUE(parsed.config.sparse);
  EXPECT_EQ(parsed.config.verbs_gid, 3);
  EXPECT_EQ(parsed.config.tcp_ports.first, 20000);
  EXPECT_EQ(parsed.config.tcp_ports.last, 20099);
  EXPECT_EQ(parsed.config.verbs_timeout, milliseconds(7500));
  EXPECT_TRUE(parsed.config.verbs_odp);
  EXPECT_EQ(parsed.config.verbs_traffic_class, 104);
  EXPECT_EQ(parsed.config.verbs_sl, 3);
  EXPECT_EQ(parsed.config.verbs_pkey, 2);
  EXPECT_FALSE(parsed.config.measure);
  EXPECT_EQ(parsed.config.single_copy, std::optional(true));
  EXPECT_EQ(parsed.config.progress_thread, ProgressThreadSetting::always);
  EXPECT_EQ(parsed.config.cache_folder, "/some/where");
}

TEST(Config, NamesAreTakenInAnyCase) {
  const ParsedConfig parsed = parse_config({"HEDDLE_TRANSPORTS=SHM,Tcp", "HEDDLE_LOG=INFO"});
  EXPECT_TRUE(parsed.complaints.empty()) << parsed.complaints.front();
  EXPECT_EQ(parsed.config.transports, "shm,tcp");
  EXPECT_EQ(parsed.config.log_level, LogLevel::info);
}

TEST(Config, ComplaintNamesVariableValueAndWhatIsUsed) {
  const ParsedConfig parsed = parse_config({"HEDDLE_TIMEOUT=abc"});
  ASSERT_EQ(parsed.complaints.size(), 1U);
  EXPECT_EQ(parsed.complaints[0],
            "HEDDLE_TIMEOUT=\"abc\" is not a number of seconds; using the default, 0 (no deadline)");
  EXPECT_EQ(parsed.config.timeout, milliseconds(0));
}

struct Wrong {
  const char* entry;
  const char* says;
};

class WrongValue : public testing::TestWithParam<Wrong> {};

TEST_P(WrongValue, GivesOneComplaintAndTheDefault) {
  const ParsedConfig parsed = parse_config({GetParam().entry});
  ASSERT_EQ(parsed.complaints.size(), 1U) << GetParam().entry;
  EXPECT_NE(parsed.complaints[0].find(GetParam().says), std::string::npos) << parsed.complaints[0];
  EXPECT_NE(parsed.complaints[0].find("; using "), std::string::npos) << parsed.complaints[0];
  const Config& c = parsed.config;
  const Config d;
  EXPECT_TRUE(c.enable == d.enable && c.log_level == d.log_level && c.algorithm == d.algorithm &&
              c.transports == d.transports && c.timeout == d.timeout && c.warn_after == d.warn_after &&
              c.slot_bytes == d.slot_bytes && c.spin == d.spin && c.shm_backing == d.shm_backing &&
              c.master_port == d.master_port && c.alloc_mem == d.alloc_mem && c.measure == d.measure &&
              c.single_copy == d.single_copy && c.cache_folder == d.cache_folder &&
              c.progress_thread == d.progress_thread && c.verbs_traffic_class == d.verbs_traffic_class &&
              c.verbs_sl == d.verbs_sl && c.verbs_pkey == d.verbs_pkey && c.verbs_odp == d.verbs_odp)
      << GetParam().entry;
}

INSTANTIATE_TEST_SUITE_P(
    Values, WrongValue,
    testing::Values(
        Wrong{"HEDDLE_ENABLE=maybe", "neither 0 nor 1"}, Wrong{"HEDDLE_ENABLE=2", "neither 0 nor 1"},
        Wrong{"HEDDLE_ALLOC_MEM=some", "neither 0 nor 1"}, Wrong{"HEDDLE_MEASURE=2", "neither 0 nor 1"},
        Wrong{"HEDDLE_SINGLE_COPY=8K", "not one of auto, 0, 1"},
        Wrong{"HEDDLE_CACHE=here", "not an absolute path"},
        Wrong{"HEDDLE_PROGRESS_THREAD=2", "auto, 0, 1, always"},
        Wrong{"HEDDLE_LOG=loud", "none, error, warn"}, Wrong{"HEDDLE_ALGORITHM=,", "form"},
        Wrong{"HEDDLE_ALGORITHM=gather:ring", "none of allreduce, bcast, reduce, allgather, sparse"},
        Wrong{"HEDDLE_ALGORITHM=allreduce:", "form"}, Wrong{"HEDDLE_TRANSPORTS=shm,udp", "\"udp\""},
        Wrong{"HEDDLE_TIMEOUT=-1", "outside"}, Wrong{"HEDDLE_TIMEOUT=1e300", "outside"},
        Wrong{"HEDDLE_TIMEOUT=nan", "not a number"}, Wrong{"HEDDLE_TIMEOUT=inf", "not a number"},
        Wrong{"HEDDLE_TIMEOUT=5s", "not a number"}, Wrong{"HEDDLE_WARN_AFTER= 5", "not a number"},
        Wrong{"HEDDLE_SLOT_BYTES=4095", "outside 4K"}, Wrong{"HEDDLE_SLOT_BYTES=65M", "outside 4K"},
        Wrong{"HEDDLE_SLOT_BYTES=5000", "multiple"}, Wrong{"HEDDLE_SLOT_BYTES=K", "not a size"},
        Wrong{"HEDDLE_SLOT_BYTES=99999999999999999999", "not a size"}, Wrong{"HEDDLE_SPIN=-2", "outside"},
        Wrong{"HEDDLE_SPIN=1.5", "whole number"}, Wrong{"HEDDLE_SHM=/dev/shm", "auto, memfd"},
        Wrong{"HEDDLE_VERBS_GID=256", "GID"}, Wrong{"HEDDLE_VERBS_GID=x", "GID"},
        Wrong{"HEDDLE_VERBS_TIMEOUT=0", "0.1 to 600"}, Wrong{"HEDDLE_VERBS_TIMEOUT=601", "0.1 to 600"},
        Wrong{"HEDDLE_VERBS_TIMEOUT=nan", "0.1 to 600"}, Wrong{"HEDDLE_VERBS_TRAFFIC_CLASS=256", "0 to 255"},
        Wrong{"HEDDLE_VERBS_TRAFFIC_CLASS=AF31", "DSCP"}, Wrong{"HEDDLE_VERBS_SL=16", "0 to 15"},
        Wrong{"HEDDLE_VERBS_SL=-1", "0 to 15"}, Wrong{"HEDDLE_VERBS_PKEY=0", "partition"},
        Wrong{"HEDDLE_VERBS_PKEY=0x8000", "partition"}, Wrong{"HEDDLE_VERBS_PKEY=0x10000", "partition"},
        Wrong{"HEDDLE_VERBS_PKEY=0x-1", "partition"}, Wrong{"HEDDLE_VERBS_PKEY=0x", "partition"},
        Wrong{"HEDDLE_VERBS_ODP=auto", "neither 0 nor 1"}, Wrong{"HEDDLE_MASTER_PORT=0", "port"},
        Wrong{"HEDDLE_MASTER_PORT=65536", "port"}, Wrong{"HEDDLE_TCP_PORTS=0-9", "FIRST-LAST"},
        Wrong{"HEDDLE_TCP_PORTS=9-8", "FIRST-LAST"}, Wrong{"HEDDLE_TCP_PORTS=9-65536", "FIRST-LAST"},
        Wrong{"HEDDLE_TCP_PORTS=9-", "FIRST-LAST"}, Wrong{"HEDDLE_TCP_PORTS=-9", "FIRST-LAST"}));

// Of each kind of values that have 0 and 1 among them.
TEST(Config, SwitchesAsPeopleWriteThem) {
  for (const char* const on : {"1", "on", "yes", "True"}) {
    const ParsedConfig parsed =
        parse_config({std::string("HEDDLE_CHECK=") + on, std::string("HEDDLE_VERBS_ODP=") + on,
                      std::string("HEDDLE_SINGLE_COPY=") + on, std::string("HEDDLE_PROGRESS_THREAD=") + on});
    EXPECT_TRUE(parsed.complaints.empty()) << parsed.complaints.front();
    EXPECT_EQ(parsed.config.check, CheckSetting::calls) << on;
    EXPECT_TRUE(parsed.config.verbs_odp) << on;
    EXPECT_EQ(parsed.config.single_copy, true) << on;
    EXPECT_EQ(parsed.config.progress_thread, ProgressThreadSetting::spare) << on;
  }
  for (const char* const off : {"0", "OFF", "no", "false"}) {
    const ParsedConfig parsed = parse_config(
        {std::string("HEDDLE_CHECK=") + off, std::string("HEDDLE_MEASURE=") + off,
         std::string("HEDDLE_SINGLE_COPY=") + off, std::string("HEDDLE_PROGRESS_THREAD=") + off});
    EXPECT_TRUE(parsed.complaints.empty()) << parsed.complaints.front();
    EXPECT_EQ(parsed.config.check, CheckSetting::off) << off;
    EXPECT_FALSE(parsed.config.measure) << off;
    EXPECT_EQ(parsed.config.single_copy, false) << off;
    EXPECT_EQ(parsed.config.progress_thread, ProgressThreadSetting::off) << off;
  }
  EXPECT_EQ(parse_config({"HEDDLE_CHECK=2"}).config.check, CheckSetting::results);
}

TEST(Config, KeysOfPartitionsAsPeopleWriteThem) {
  const auto key = [](const char* entry) { return parse_config({entry}).config.verbs_pkey; };
  EXPECT_EQ(key("HEDDLE_VERBS_PKEY=0x7fff"), 0x7fff);
  EXPECT_EQ(key("HEDDLE_VERBS_PKEY=0XFFFF"), 0x7fff);
  EXPECT_EQ(key("HEDDLE_VERBS_PKEY=32770"), 2);
}

TEST(Config, OnePortIsARange) {
  const Config config = parse_config({"HEDDLE_TCP_PORTS=20000"}).config;
  EXPECT_EQ(config.tcp_ports.first, 20000);
  EXPECT_EQ(config.tcp_ports.last, 20000);
}

TEST(Config, WhatIsForUcxIsLeftToIt) {
  EXPECT_EQ(parse_config({"HEDDLE_UCX_TLS=tcp", "HEDDLE_UCX_ANYTHING="}).complaints.size(), 0U);
  EXPECT_EQ(parse_config({"HEDDLE_UCX=tcp"}).complaints.size(), 1U);
}

TEST(Config, UnknownNameIsReportedWithTheNearest) {
  const ParsedConfig parsed =
      parse_config({"HEDDLE_TIMOUT=5", "HEDDLE_SLOTBYTES=4K", "HEDDLE_=", "HEDDLE_LOGS=info"});
  ASSERT_EQ(parsed.complaints.size(), 4U);
  EXPECT_NE(parsed.complaints[0].find("the nearest is HEDDLE_TIMEOUT)"), std::string::npos)
      << parsed.complaints[0];
  EXPECT_NE(parsed.complaints[1].find("the nearest is HEDDLE_SLOT_BYTES)"), std::string::npos)
      << parsed.complaints[1];
  EXPECT_NE(parsed.complaints[3].find("the nearest is HEDDLE_LOG)"), std::string::npos)
      << parsed.complaints[3];
}

TEST(Config, EmptyValueIsUnset) {
  for (const ConfigRow& row : config_rows()) {
    const std::string name(row.variable.name);
    EXPECT_TRUE(parse_config({name + "="}).complaints.empty()) << name;
  }
}

TEST(Config, OfANameGivenTwiceTheLastCounts) {
  EXPECT_EQ(parse_config({"HEDDLE_SPIN=1", "HEDDLE_SPIN=2"}).config.spin, 2);
}

TEST(Config, HostileValuesStayOneShortLine) {
  const ParsedConfig parsed = parse_config({"HEDDLE_LOG=a\nb\x01" + std::string(100'000, 'x')});
  ASSERT_EQ(parsed.complaints.size(), 1U);
  EXPECT_EQ(parsed.complaints[0].find('\n'), std::string::npos);
  EXPECT_LT(parsed.complaints[0].size(), 400U);
}

TEST(Config, TinyDeadlineDoesNotBecomeNever) {
  EXPECT_EQ(parse_config({"HEDDLE_TIMEOUT=0.0001"}).config.timeout, milliseconds(1));
}

TEST(Config, ReadsTheRealEnvironment) {
  ASSERT_EQ(::setenv("HEDDLE_SPIN", "7", 1), 0);
  const int spin = parse_config_from_environ().config.spin;
  ::unsetenv("HEDDLE_SPIN");
  EXPECT_EQ(spin, 7);
}

TEST(Config, ParseSize) {
  EXPECT_EQ(parse_size("128"), 128U);
  EXPECT_EQ(parse_size("64K"), 65536U);
  EXPECT_EQ(parse_size("1m"), 1048576U);
  EXPECT_EQ(parse_size("2G"), std::size_t{2} << 30);
  EXPECT_EQ(parse_size("18446744073709551615"), SIZE_MAX);
  for (const char* bad :
       {"", "K", "-1", "1KB", "0x10", "1.5M", " 1", "18446744073709551615K", "18446744073709551616"}) {
    EXPECT_EQ(parse_size(bad), std::nullopt) << bad;
  }
}

// Regenerate the table with `heddle-info --environment-table`.
TEST(Config, DocumentHasExactlyTheTable) {
  std::ifstream file(HEDDLE_ENVIRONMENT_MD);
  ASSERT_TRUE(file) << HEDDLE_ENVIRONMENT_MD;
  std::string rows;
  // Other programs' variables come behind it.
  for (std::string line; std::getline(file, line) && line != "## Other variables";) {
    if (!line.empty() && line.front() == '|') rows += line + "\n";
  }
  EXPECT_EQ(rows, config_table_markdown());
}

}  // namespace
}  // namespace heddle
