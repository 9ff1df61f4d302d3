// Communicators of parts of another one.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "heddle/heddle.h"
#include "heddle/heddle.hpp"
#include "ranks.hpp"

namespace {

using heddle::testing_ranks::on_ranks;

std::int64_t sum_of_ranks(heddle_comm_t comm, int rank) {
  std::int64_t value = rank;
  EXPECT_EQ(heddle_allreduce(HEDDLE_IN_PLACE, &value, 1, HEDDLE_INT64, HEDDLE_SUM, comm), HEDDLE_OK)
      << heddle_last_error();
  return value;
}

TEST(Split, PutsEqualColorsTogether) {
  for (const int size : {1, 2, 3, 5, 8, 13}) {
    for (const int colors : {1, 2, 3}) {
      on_ranks(size, [&](heddle_comm_t comm, int rank) {
        heddle_comm_t part = nullptr;
        ASSERT_EQ(heddle_comm_split(comm, rank % colors, 0, &part), HEDDLE_OK) << heddle_last_error();
        std::vector<int> members;
        for (int r = rank % colors; r < size; r += colors)
          members.push_back(r);
        int place = -1;
        int ranks = -1;
        ASSERT_EQ(heddle_comm_rank(part, &place), HEDDLE_OK);
        ASSERT_EQ(heddle_comm_size(part, &ranks), HEDDLE_OK);
        EXPECT_EQ(static_cast<std::size_t>(ranks), members.size());
        EXPECT_EQ(place, rank / colors);
        std::int64_t expected = 0;
        for (const int r : members)
          expected += r;
        EXPECT_EQ(sum_of_ranks(part, rank), expected);
        int root = rank;
        ASSERT_EQ(heddle_bcast(&root, sizeof root, ranks - 1, part), HEDDLE_OK) << heddle_last_error();
        EXPECT_EQ(root, members.back());
        EXPECT_EQ(sum_of_ranks(comm, rank), static_cast<std::int64_t>(size) * (size - 1) / 2);
        EXPECT_EQ(heddle_comm_destroy(part), HEDDLE_OK);
      });
    }
  }
}

// They have one heap together.
TEST(Misuse, OfMemoryOfAPart) {
  on_ranks(2, [](heddle_comm_t comm, int) {
    heddle_comm_t part = nullptr;
    ASSERT_EQ(heddle_comm_split(comm, 0, 0, &part), HEDDLE_OK) << heddle_last_error();
    void* of_part = nullptr;
    void* of_whole = nullptr;
    ASSERT_EQ(heddle_alloc(10'000, part, &of_part), HEDDLE_OK) << heddle_last_error();
    ASSERT_EQ(heddle_alloc(10'000, comm, &of_whole), HEDDLE_OK) << heddle_last_error();
    EXPECT_EQ(heddle_free(of_part, comm), HEDDLE_ERR_ARGUMENT);
    EXPECT_NE(std::string(heddle_last_error()).find("not from heddle_alloc on this communicator"),
              std::string::npos)
        << heddle_last_error();
    EXPECT_EQ(heddle_free(of_whole, part), HEDDLE_ERR_ARGUMENT);
    EXPECT_EQ(heddle_free(of_part, part), HEDDLE_OK);
    EXPECT_EQ(heddle_free(of_part, part), HEDDLE_ERR_ARGUMENT);
    EXPECT_EQ(heddle_comm_destroy(part), HEDDLE_OK);
    EXPECT_EQ(heddle_free(of_whole, comm), HEDDLE_OK);
  });
}

// Each piece has a descriptor.
TEST(Split, MemoryOfAPartGoesWithIt) {
  const auto descriptors = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  on_ranks(1, [&](heddle_comm_t comm, int) {
    const auto before = descriptors();
    for (int round = 0; round < 10; ++round) {
      heddle_comm_t part = nullptr;
      ASSERT_EQ(heddle_comm_split(comm, 0, 0, &part), HEDDLE_OK) << heddle_last_error();
      void* memory = nullptr;
      ASSERT_EQ(heddle_alloc(10'000, part, &memory), HEDDLE_OK) << heddle_last_error();
      ASSERT_EQ(heddle_comm_destroy(part), HEDDLE_OK);
    }
    EXPECT_EQ(descriptors(), before);
  });
}

// By key, and among equal keys by rank.
TEST(Split, OrdersByKey) {
  on_ranks(6, [](heddle_comm_t comm, int rank) {
    heddle_comm_t part = nullptr;
    const int keys[] = {7, -2, 7, 0, -2, 9};
    const int places[] = {3, 0, 4, 2, 1, 5};
    ASSERT_EQ(heddle_comm_split(comm, 3, keys[rank], &part), HEDDLE_OK) << heddle_last_error();
    int place = -1;
    ASSERT_EQ(heddle_comm_rank(part, &place), HEDDLE_OK);
    EXPECT_EQ(place, places[rank]);
    EXPECT_EQ(sum_of_ranks(part, rank), 15);
    EXPECT_EQ(heddle_comm_destroy(part), HEDDLE_OK);
  });
}

TEST(Split, LeavesOutWhoHasNoColor) {
  on_ranks(4, [](heddle_comm_t comm, int rank) {
    heddle_comm_t part = comm;
    ASSERT_EQ(heddle_comm_split(comm, rank == 2 ? HEDDLE_NO_COLOR : 0, 0, &part), HEDDLE_OK)
        << heddle_last_error();
    if (rank == 2) {
      EXPECT_EQ(part, nullptr);
      return;
    }
    EXPECT_EQ(sum_of_ranks(part, rank), 4);
    EXPECT_EQ(heddle_comm_destroy(part), HEDDLE_OK);
  });
}

// Parts of parts; and what they come from may go first.
TEST(Split, OutlivesWhatItComesFrom) {
  on_ranks(8, [](heddle_comm_t comm, int rank) {
    heddle_comm_t half = nullptr;
    ASSERT_EQ(heddle_comm_split(comm, rank / 4, 0, &half), HEDDLE_OK) << heddle_last_error();
    heddle_comm_t quarter = nullptr;
    ASSERT_EQ(heddle_comm_split(half, rank % 2, -rank, &quarter), HEDDLE_OK) << heddle_last_error();
    EXPECT_EQ(heddle_comm_destroy(half), HEDDLE_OK);
    EXPECT_EQ(sum_of_ranks(quarter, rank), 2 * (rank / 4 * 4 + rank % 2) + 2);
    int place = -1;
    ASSERT_EQ(heddle_comm_rank(quarter, &place), HEDDLE_OK);
    EXPECT_EQ(place, rank % 4 < 2 ? 1 : 0);
    EXPECT_EQ(heddle_comm_destroy(quarter), HEDDLE_OK);
  });
}

TEST(Split, RefusesColorsThatMeanNothing) {
  on_ranks(1, [](heddle_comm_t comm, int) {
    heddle_comm_t part = comm;
    EXPECT_EQ(heddle_comm_split(comm, -7, 0, &part), HEDDLE_ERR_ARGUMENT);
    EXPECT_STREQ(heddle_last_error(), "color -7 is neither 0 or more nor HEDDLE_NO_COLOR (-1)");
    EXPECT_EQ(part, nullptr);
    EXPECT_EQ(heddle_comm_split(comm, 0, 0, nullptr), HEDDLE_ERR_ARGUMENT);
    EXPECT_EQ(heddle_comm_split(nullptr, 0, 0, &part), HEDDLE_ERR_ARGUMENT);
  });
}

TEST(Split, InCpp) {
  heddle::testing_ranks::Meeting meeting(5);
  heddle::testing_ranks::on_threads(5, [&](int rank) {
    const auto gather = [&](const void* mine, void* all, std::size_t bytes) {
      meeting.allgather(rank, mine, all, bytes);
      return 0;
    };
    const heddle::api::Comm comm = heddle::api::Comm::from_allgather(rank, 5, gather);
    const heddle::api::Comm part = comm.split(rank == 4 ? HEDDLE_NO_COLOR : rank % 2, -rank);
    EXPECT_EQ(part.handle() == nullptr, rank == 4);
    if (rank == 4) return;
    EXPECT_EQ(part.size(), 2);
    EXPECT_EQ(part.rank(), rank < 2 ? 1 : 0);
  });
}

}  // namespace
