// What a process reads of its place in a job, and what it remembers.
#include <gtest/gtest.h>

#include "setup/bootstrap.hpp"

namespace heddle {
namespace {

using std::chrono::milliseconds;

TEST(Rendezvous, ReadsTorchrunsNames) {
  const auto where = rendezvous_from({"RANK=3", "WORLD_SIZE=4", "MASTER_ADDR=n0", "MASTER_PORT=29500"}, 0);
  ASSERT_TRUE(where.ok()) << where.status().message();
  EXPECT_EQ(where.value().rank, 3);
  EXPECT_EQ(where.value().size, 4);
  EXPECT_EQ(where.value().address, "n0");
  EXPECT_EQ(where.value().port, 29500);
  EXPECT_EQ(rendezvous_from({"RANK=0", "WORLD_SIZE=4", "MASTER_ADDR=n0"}, 7).value().port, 7);
  EXPECT_TRUE(rendezvous_from({"RANK=0", "WORLD_SIZE=1"}, 0).ok());
}

TEST(Rendezvous, IPv6AddressesMayStandInBrackets) {
  const auto address = [](const std::string& value) {
    const auto where =
        rendezvous_from({"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=" + value, "MASTER_PORT=1"}, 0);
    return where.ok() ? where.value().address : where.status().message();
  };
  EXPECT_EQ(address("::1"), "::1");
  EXPECT_EQ(address("[::1]"), "::1");
  EXPECT_EQ(address("[fe80::1%eth0]"), "fe80::1%eth0");
  for (const std::string value :
       {"[", "]", "[]", "[::1", "::1]", "[n0]", "[10.0.0.1]", "[::1]:29500", "[[::1]]"}) {
    const std::string says = address(value);
    EXPECT_EQ(says.find("MASTER_ADDR=\"" + value + "\" has brackets"), 0u) << says;
    EXPECT_NE(says.find("MASTER_PORT"), std::string::npos) << says;
  }
}

TEST(Rendezvous, TheLaunchersNameOfTheJob) {
  const auto job = [](std::vector<std::string> environment) {
    environment.insert(environment.end(), {"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=1"});
    return rendezvous_from(environment, 0).value().job;
  };
  EXPECT_EQ(job({}), "");
  EXPECT_EQ(job({"SLURM_JOB_ID=7", "TORCHELASTIC_RUN_ID=mine"}), "TORCHELASTIC_RUN_ID=mine");
  EXPECT_EQ(job({"SLURM_JOB_ID=7", "TORCHELASTIC_RUN_ID=none"}), "SLURM_JOB_ID=7");
  EXPECT_EQ(job({"PBS_JOBID=8.host", "SLURM_JOB_ID="}), "PBS_JOBID=8.host");
}

TEST(Rendezvous, OddValuesAreNamed) {
  const auto says = [](const std::vector<std::string>& environment, const char* text) {
    const Status status = rendezvous_from(environment, 0).status();
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_NE(status.message().find(text), std::string::npos) << status.message();
  };
  says({"RANK=0"}, "WORLD_SIZE is not set");
  says({"RANK=0", "WORLD_SIZE=2x"}, "WORLD_SIZE=\"2x\" is not a number of ranks");
  says({"RANK=0", "WORLD_SIZE=0"}, "WORLD_SIZE=\"0\"");
  says({"RANK=0", "WORLD_SIZE=99999999999"}, "WORLD_SIZE=");
  says({"WORLD_SIZE=2"}, "RANK is not set");
  says({"RANK=2", "WORLD_SIZE=2"}, "RANK=\"2\" is not a rank of this job (0 to 1)");
  says({"RANK=-1", "WORLD_SIZE=2"}, "RANK=\"-1\"");
  says({"RANK= 1", "WORLD_SIZE=2"}, "RANK=\" 1\"");
  says({"RANK=1", "WORLD_SIZE=2", "MASTER_PORT=1"}, "MASTER_ADDR is not set");
  says({"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=h"}, "MASTER_PORT is not set");
  says({"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=http"}, "MASTER_PORT=\"http\" is not a port");
}

// In a job in which one rank is late in each step, all others would say nothing else.
TEST(ProcessState, AWarningKeepsOthersBackForAWhile) {
  ProcessState process;
  const TimePoint first = now({});
  EXPECT_TRUE(process.may_warn(first));
  process.has_warned(first);
  EXPECT_FALSE(process.may_warn(first + milliseconds(1)));
  EXPECT_FALSE(process.may_warn(first + ProcessState::kQuietAfterWarning - milliseconds(1)));
  EXPECT_TRUE(process.may_warn(first + ProcessState::kQuietAfterWarning));
}

}  // namespace
}  // namespace heddle
