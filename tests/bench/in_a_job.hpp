// A job of one rank, for tests of what takes a job.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "common/host_mpi.hpp"
#include "common/job.hpp"

namespace heddle::bench {

class InAJob : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string problem;
    // Where there is no MPI to make a job of one rank.
    for (const auto& [name, value] :
         {std::pair("RANK", "0"), std::pair("WORLD_SIZE", "1"), std::pair("MASTER_ADDR", "127.0.0.1"),
          std::pair("MASTER_PORT", "29500")}) {
      if (!host::built_in()) setenv(name, value, 1);
    }
    job = Job::start(nullptr, nullptr, !host::built_in(), false, problem);
    ASSERT_NE(job, nullptr) << problem;
    ASSERT_EQ(job->size(), 1);
  }
  static void TearDownTestSuite() { job.reset(); }
  static inline std::unique_ptr<Job> job;
};

}  // namespace heddle::bench
