// Non-blocking and persistent collectives through libheddle.so.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "heddle/heddle.h"
#include "ranks.hpp"

namespace {

using heddle::testing_ranks::on_ranks;

class Requests : public testing::TestWithParam<int> {};

TEST_P(Requests, WaitCompletesAndFrees) {
  const int size = GetParam();
  on_ranks(size, [&](heddle_comm_t comm, int rank) {
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, std::size_t{5000}, std::size_t{100'000}}) {
      const std::vector<double> in(count, rank + 1.0);
      std::vector<double> out(count);
      heddle_request_t request = nullptr;
      ASSERT_EQ(heddle_iallreduce(in.data(), out.data(), count, HEDDLE_FLOAT64, HEDDLE_SUM, comm, &request),
                HEDDLE_OK)
          << heddle_last_error();
      ASSERT_NE(request, nullptr);
      ASSERT_EQ(heddle_wait(&request), HEDDLE_OK) << heddle_last_error();
      EXPECT_EQ(request, nullptr);
      ASSERT_EQ(out, std::vector<double>(count, size * (size + 1) / 2.0));
    }
  });
}

TEST_P(Requests, ReducesToTheRoot) {
  const int size = GetParam();
  on_ranks(size, [&](heddle_comm_t comm, int rank) {
    const int root = size / 2;
    std::vector<double> in(5'000, rank + 1.0);
    std::vector<double> out(in.size(), -1);
    heddle_request_t persistent = nullptr;
    ASSERT_EQ(heddle_reduce_init(in.data(), rank == root ? out.data() : nullptr, in.size(), HEDDLE_FLOAT64,
                                 HEDDLE_SUM, root, comm, &persistent),
              HEDDLE_OK)
        << heddle_last_error();
    for (const double times : {1.0, 2.0, 3.0}) {
      std::fill(in.begin(), in.end(), times * (rank + 1));
      ASSERT_EQ(heddle_start(persistent), HEDDLE_OK);
      heddle_request_t once = nullptr;
      std::vector<double> largest(1);
      ASSERT_EQ(heddle_ireduce(in.data(), largest.data(), 1, HEDDLE_FLOAT64, HEDDLE_MAX, root, comm, &once),
                HEDDLE_OK);
      ASSERT_EQ(heddle_wait(&persistent), HEDDLE_OK) << heddle_last_error();
      ASSERT_EQ(heddle_wait(&once), HEDDLE_OK) << heddle_last_error();
      if (rank != root) continue;
      ASSERT_EQ(out, std::vector<double>(out.size(), times * size * (size + 1) / 2.0));
      ASSERT_EQ(largest[0], times * size);
    }
    ASSERT_EQ(heddle_request_free(&persistent), HEDDLE_OK);
  });
}

// What rank r gives of `round`, and what all give.
std::vector<int> given(int rank, std::size_t count, int round) {
  std::vector<int> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = rank * 1'000'000 + round * 100'000 + static_cast<int>(i);
  return values;
}
std::vector<int> given_by_all(int size, std::size_t count, int round) {
  std::vector<int> all;
  for (int rank = 0; rank < size; ++rank) {
    const std::vector<int> values = given(rank, count, round);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

void gathers(heddle_comm_t comm, int size, int rank) {
  for (const std::size_t count : {0, 1, 1000, 50'000}) {
    const std::size_t all = count * static_cast<std::size_t>(size);
    std::vector<int> in(count);
    std::vector<int> out(all, -1);
    std::vector<int> both(all, -1);
    heddle_request_t separate = nullptr;
    heddle_request_t in_place = nullptr;
    ASSERT_EQ(heddle_allgather_init(in.data(), out.data(), count * sizeof(int), comm, &separate), HEDDLE_OK)
        << heddle_last_error();
    ASSERT_EQ(heddle_allgather_init(HEDDLE_IN_PLACE, both.data(), count * sizeof(int), comm, &in_place),
              HEDDLE_OK)
        << heddle_last_error();
    for (int round = 0; round < 4; ++round) {
      std::ranges::copy(given(rank, count, round), in.begin());
      both.assign(all, -1);
      std::ranges::copy(in,
                        both.begin() + static_cast<std::ptrdiff_t>(count * static_cast<std::size_t>(rank)));
      ASSERT_EQ(heddle_start(separate), HEDDLE_OK) << heddle_last_error();
      ASSERT_EQ(heddle_start(in_place), HEDDLE_OK) << heddle_last_error();
      ASSERT_EQ(heddle_wait(&in_place), HEDDLE_OK) << heddle_last_error();
      for (int done = 0; done == 0;)
        ASSERT_EQ(heddle_test(&separate, &done), HEDDLE_OK) << heddle_last_error();
      ASSERT_EQ(out, given_by_all(size, count, round));
      ASSERT_EQ(both, out) << "in place";
      ASSERT_EQ(in, given(rank, count, round)) << "the input was changed";
    }
    EXPECT_EQ(heddle_request_free(&separate), HEDDLE_OK);
    EXPECT_EQ(heddle_request_free(&in_place), HEDDLE_OK);
  }
}

TEST_P(Requests, GatherAgainAndAgain) {
  const int size = GetParam();
  on_ranks(size, [&](heddle_comm_t comm, int rank) { gathers(comm, size, rank); });
  for (const char* algorithm : {"allgather:ring", "allgather:bruck"}) {
    ASSERT_EQ(::setenv("HEDDLE_ALGORITHM", algorithm, 1), 0);
    on_ranks(size, [&](heddle_comm_t comm, int rank) { gathers(comm, size, rank); });
  }
  ::unsetenv("HEDDLE_ALGORITHM");
}

TEST_P(Requests, SeveralGatherWhileOthersSum) {
  const int size = GetParam();
  on_ranks(size, [&](heddle_comm_t comm, int rank) {
    constexpr int kOpen = 4;
    constexpr std::size_t kCount = 3000;
    std::vector<std::vector<int>> in;
    std::vector<std::vector<int>> out(kOpen, std::vector<int>(kCount * static_cast<std::size_t>(size)));
    std::vector<std::vector<int>> sums(kOpen, std::vector<int>(kCount, rank));
    std::vector<heddle_request_t> requests;
    for (int i = 0; i < kOpen; ++i) {
      const auto at = static_cast<std::size_t>(i);
      in.push_back(given(rank, kCount, i));
      ASSERT_EQ(heddle_iallgather(in[at].data(), out[at].data(), kCount * sizeof(int), comm,
                                  &requests.emplace_back()),
                HEDDLE_OK)
          << heddle_last_error();
      ASSERT_EQ(heddle_iallreduce(HEDDLE_IN_PLACE, sums[at].data(), kCount, HEDDLE_INT32, HEDDLE_SUM, comm,
                                  &requests.emplace_back()),
                HEDDLE_OK)
          << heddle_last_error();
    }
    std::vector<int> ranks(static_cast<std::size_t>(size));
    ASSERT_EQ(heddle_allgather(&rank, ranks.data(), sizeof rank, comm), HEDDLE_OK) << heddle_last_error();
    for (int r = 0; r < size; ++r)
      ASSERT_EQ(ranks[static_cast<std::size_t>(r)], r);
    // Waited for in another order on every rank.
    for (std::size_t i = 0; i < requests.size(); ++i) {
      ASSERT_EQ(heddle_wait(&requests[(i + static_cast<std::size_t>(rank)) % requests.size()]), HEDDLE_OK)
          << heddle_last_error();
    }
    for (int i = 0; i < kOpen; ++i) {
      ASSERT_EQ(out[static_cast<std::size_t>(i)], given_by_all(size, kCount, i));
      ASSERT_EQ(sums[static_cast<std::size_t>(i)], std::vector<int>(kCount, size * (size - 1) / 2));
    }
  });
}

TEST_P(Requests, TestCompletesAndFrees) {
  const int size = GetParam();
  on_ranks(size, [&](heddle_comm_t comm, int rank) {
    std::vector<int> data(10'000, rank == size - 1 ? 42 : 0);
    heddle_request_t request = nullptr;
    ASSERT_EQ(heddle_ibcast(data.data(), data.size() * sizeof(int), size - 1, comm, &request), HEDDLE_OK)
        << heddle_last_error();
    for (int done = 0; done == 0;)
      ASSERT_EQ(heddle_test(&request, &done), HEDDLE_OK) << heddle_last_error();
    EXPECT_EQ(request, nullptr);
    ASSERT_EQ(data, std::vector<int>(10'000, 42));
  });
}

TEST_P(Requests, SeveralAreUnderWayAndBlockingOnesBetween) {
  const int size = GetParam();
  on_ranks(size, [&](heddle_comm_t comm, int rank) {
    constexpr int kOpen = 6;
    std::vector<std::vector<long long>> data(kOpen, std::vector<long long>(3000, rank));
    std::vector<heddle_request_t> requests(kOpen + 1);
    for (int i = 0; i < kOpen; ++i) {
      auto& mine = data[static_cast<std::size_t>(i)];
      for (long long& x : mine)
        x += i;
      ASSERT_EQ(heddle_iallreduce(HEDDLE_IN_PLACE, mine.data(), mine.size(), HEDDLE_INT64, HEDDLE_SUM, comm,
                                  &requests[static_cast<std::size_t>(i)]),
                HEDDLE_OK)
          << heddle_last_error();
    }
    ASSERT_EQ(heddle_ibarrier(comm, &requests[kOpen]), HEDDLE_OK) << heddle_last_error();
    int one = 1;
    ASSERT_EQ(heddle_allreduce(HEDDLE_IN_PLACE, &one, 1, HEDDLE_INT32, HEDDLE_SUM, comm), HEDDLE_OK);
    EXPECT_EQ(one, size);
    // Waited for in another order on every rank.
    for (int i = 0; i <= kOpen; ++i) {
      ASSERT_EQ(heddle_wait(&requests[static_cast<std::size_t>((i + rank) % (kOpen + 1))]), HEDDLE_OK)
          << heddle_last_error();
    }
    for (int i = 0; i < kOpen; ++i) {
      ASSERT_EQ(data[static_cast<std::size_t>(i)],
                std::vector<long long>(
                    3000, static_cast<long long>(size) * (size - 1) / 2 + static_cast<long long>(size) * i));
    }
  });
}

TEST_P(Requests, PersistentBarriersHoldBackUntilAllHaveCome) {
  const int size = GetParam();
  std::atomic<int> come = 0;
  on_ranks(size, [&](heddle_comm_t comm, int rank) {
    heddle_request_t barrier = nullptr;
    ASSERT_EQ(heddle_barrier_init(comm, &barrier), HEDDLE_OK) << heddle_last_error();
    for (int round = 1; round <= 20; ++round) {
      if (round % size == rank) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      ++come;
      ASSERT_EQ(heddle_start(barrier), HEDDLE_OK) << heddle_last_error();
      ASSERT_EQ(heddle_wait(&barrier), HEDDLE_OK) << heddle_last_error();
      EXPECT_GE(come.load(), round * size);
    }
    EXPECT_EQ(heddle_request_free(&barrier), HEDDLE_OK);
  });
}

TEST_P(Requests, PersistentOnesStartAgainAndAgain) {
  const int size = GetParam();
  on_ranks(size, [&](heddle_comm_t comm, int rank) {
    std::vector<float> in(2000);
    std::vector<float> out(2000);
    std::vector<char> text(500);
    heddle_request_t sum = nullptr;
    heddle_request_t copy = nullptr;
    ASSERT_EQ(heddle_allreduce_init(in.data(), out.data(), in.size(), HEDDLE_FLOAT32, HEDDLE_SUM, comm, &sum),
              HEDDLE_OK)
        << heddle_last_error();
    ASSERT_EQ(heddle_bcast_init(text.data(), text.size(), 0, comm, &copy), HEDDLE_OK) << heddle_last_error();
    const int sum_of_ranks = size * (size - 1) / 2;
    for (int round = 0; round < 10; ++round) {
      in.assign(in.size(), static_cast<float>(rank + round));
      text.assign(text.size(), rank == 0 ? static_cast<char>('a' + round) : '?');
      ASSERT_EQ(heddle_start(sum), HEDDLE_OK) << heddle_last_error();
      ASSERT_EQ(heddle_start(copy), HEDDLE_OK) << heddle_last_error();
      ASSERT_EQ(heddle_wait(&sum), HEDDLE_OK) << heddle_last_error();
      for (int done = 0; done == 0;)
        ASSERT_EQ(heddle_test(&copy, &done), HEDDLE_OK) << heddle_last_error();
      ASSERT_NE(sum, nullptr);
      ASSERT_NE(copy, nullptr);
      ASSERT_EQ(out, std::vector<float>(out.size(), static_cast<float>(sum_of_ranks + size * round)));
      ASSERT_EQ(text, std::vector<char>(text.size(), static_cast<char>('a' + round)));
    }
    EXPECT_EQ(heddle_request_free(&sum), HEDDLE_OK);
    EXPECT_EQ(heddle_request_free(&copy), HEDDLE_OK);
    EXPECT_EQ(sum, nullptr);
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, Requests, testing::Range(1, 9));

}  // namespace
