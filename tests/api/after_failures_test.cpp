// What is left of a communicator after a call on it has failed, and after one that could not begin.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "heddle/heddle.h"
#include "ranks.hpp"

namespace {

using heddle::testing_ranks::gather_at;
using heddle::testing_ranks::Meeting;
using heddle::testing_ranks::on_ranks;
using heddle::testing_ranks::on_threads;
using heddle::testing_ranks::Seat;

TEST(Misuse, AfterATimeoutOnlyDestructionIsLeft) {
  ASSERT_EQ(::setenv("HEDDLE_TIMEOUT", "2", 1), 0);
  Meeting meeting(2);
  on_threads(2, [&](int rank) {
    Seat seat{&meeting, rank};
    heddle_comm_t comm = nullptr;
    ASSERT_EQ(heddle_comm_create(rank, 2, gather_at, &seat, nullptr, &comm), HEDDLE_OK)
        << heddle_last_error();
    if (rank == 0) {
      int data = 0;
      heddle_request_t request = nullptr;
      heddle_request_t other = nullptr;
      ASSERT_EQ(heddle_iallreduce(HEDDLE_IN_PLACE, &data, 1, HEDDLE_INT32, HEDDLE_SUM, comm, &request),
                HEDDLE_OK);
      ASSERT_EQ(heddle_ibarrier(comm, &other), HEDDLE_OK);
      int failed = -1;
      EXPECT_EQ(heddle_bcast(nullptr, 4, 0, comm), HEDDLE_ERR_ARGUMENT);
      ASSERT_EQ(heddle_comm_failed(comm, &failed), HEDDLE_OK);
      EXPECT_EQ(failed, 0) << "what is refused is no failure";
      EXPECT_EQ(heddle_wait(&request), HEDDLE_ERR_TIMEOUT);
      ASSERT_EQ(heddle_comm_failed(comm, &failed), HEDDLE_OK);
      EXPECT_EQ(failed, 1);
      EXPECT_NE(std::string(heddle_last_error()).find("rank 1"), std::string::npos) << heddle_last_error();
      const std::string first = heddle_last_error();
      EXPECT_EQ(first.find("has failed before"), std::string::npos) << first;
      EXPECT_EQ(request, nullptr);
      EXPECT_EQ(heddle_barrier(comm), HEDDLE_ERR_TIMEOUT);
      const std::string later = heddle_last_error();
      EXPECT_EQ(later.find("this communicator has failed before, and all that is left is to free it"), 0U);
      EXPECT_NE(later.find(first), std::string::npos) << later;
      EXPECT_EQ(heddle_barrier(comm), HEDDLE_ERR_TIMEOUT);
      EXPECT_EQ(heddle_last_error(), later) << "once is enough";
      EXPECT_EQ(heddle_comm_destroy(comm), HEDDLE_OK) << "a failed communicator goes with its requests";
      EXPECT_EQ(heddle_request_free(&other), HEDDLE_OK);
    }
    meeting.barrier();
    if (rank == 1) {
      EXPECT_EQ(heddle_comm_destroy(comm), HEDDLE_OK);
    }
  });
  ::unsetenv("HEDDLE_TIMEOUT");
}

// A rank hears of it where messages meet, the other one, perhaps, when it waits in vain.
TEST(Misuse, AfterCountsThatDifferOnlyDestructionIsLeft) {
  ASSERT_EQ(::setenv("HEDDLE_TIMEOUT", "2", 1), 0);
  ASSERT_EQ(::setenv("HEDDLE_ALGORITHM", "allreduce:ring", 1), 0);
  Meeting meeting(2);
  on_threads(2, [&](int rank) {
    Seat seat{&meeting, rank};
    heddle_comm_t comm = nullptr;
    ASSERT_EQ(heddle_comm_create(rank, 2, gather_at, &seat, nullptr, &comm), HEDDLE_OK)
        << heddle_last_error();
    std::vector<float> data(1000);
    heddle_request_t freed = nullptr;
    heddle_request_t outlives = nullptr;
    for (heddle_request_t* request : {&freed, &outlives})
      ASSERT_EQ(heddle_allreduce_init(HEDDLE_IN_PLACE, data.data(), 1000 - 2 * static_cast<std::size_t>(rank),
                                      HEDDLE_FLOAT32, HEDDLE_SUM, comm, request),
                HEDDLE_OK);
    const bool started = heddle_start(freed) == HEDDLE_OK && heddle_start(outlives) == HEDDLE_OK;
    EXPECT_FALSE(started && heddle_wait(&freed) == HEDDLE_OK);
    meeting.barrier();
    EXPECT_EQ(heddle_request_free(&freed), HEDDLE_OK) << heddle_last_error();
    EXPECT_EQ(heddle_comm_destroy(comm), HEDDLE_OK) << heddle_last_error();
    EXPECT_EQ(heddle_request_free(&outlives), HEDDLE_OK) << heddle_last_error();
  });
  ::unsetenv("HEDDLE_ALGORITHM");
  ::unsetenv("HEDDLE_TIMEOUT");
}

TEST(Misuse, WhatThereIsNoMemoryForDoesNoHarm) {
  ASSERT_EQ(::setenv("HEDDLE_ALGORITHM", "allreduce:recursive_doubling", 1), 0);
  ASSERT_EQ(::setenv("HEDDLE_TIMEOUT", "10", 1), 0);
  constexpr std::size_t kTooMany = std::size_t{1} << 58;
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    std::vector<float> data(1000);
    heddle_request_t request = nullptr;
    for (int round = 0; round < 3; ++round) {
      data.assign(data.size(), static_cast<float>(rank + 1));
      ASSERT_EQ(heddle_allreduce(HEDDLE_IN_PLACE, data.data(), 1000, HEDDLE_FLOAT32, HEDDLE_SUM, comm),
                HEDDLE_OK)
          << heddle_last_error();
      ASSERT_EQ(data, std::vector<float>(1000, 3));
      data.assign(data.size(), static_cast<float>(rank + 1));
      ASSERT_EQ(
          heddle_iallreduce(HEDDLE_IN_PLACE, data.data(), 1000, HEDDLE_FLOAT32, HEDDLE_SUM, comm, &request),
          HEDDLE_OK)
          << heddle_last_error();
      ASSERT_EQ(heddle_wait(&request), HEDDLE_OK) << heddle_last_error();
      ASSERT_EQ(data, std::vector<float>(1000, 3));
      // On one rank alone: it has sent nothing.
      if (rank == 1) continue;
      EXPECT_EQ(heddle_allreduce(HEDDLE_IN_PLACE, data.data(), kTooMany, HEDDLE_FLOAT32, HEDDLE_SUM, comm),
                HEDDLE_ERR_MEMORY);
      EXPECT_EQ(heddle_iallreduce(HEDDLE_IN_PLACE, data.data(), kTooMany, HEDDLE_FLOAT32, HEDDLE_SUM, comm,
                                  &request),
                HEDDLE_ERR_MEMORY);
      EXPECT_EQ(request, nullptr);
    }
    // Some bcasts are meetings, by a count that all ranks have alike.
    for (int i = 0; i < 80; ++i) {
      int value = rank == i % 2 ? i : -1;
      ASSERT_EQ(heddle_bcast(&value, sizeof value, i % 2, comm), HEDDLE_OK)
          << i << ": " << heddle_last_error();
      ASSERT_EQ(value, i);
    }
  });
  ::unsetenv("HEDDLE_TIMEOUT");
  ::unsetenv("HEDDLE_ALGORITHM");
}

}  // namespace
