// Sparse vectors through libheddle.so.
#include "heddle/heddle_sparse.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "ranks.hpp"
#include "sparse_vectors.hpp"

namespace {

using heddle::testing_ranks::expect_result;
using heddle::testing_ranks::grow;
using heddle::testing_ranks::kDimension;
using heddle::testing_ranks::message_has;
using heddle::testing_ranks::mine_of;
using heddle::testing_ranks::on_ranks;
using heddle::testing_ranks::result_size;
using heddle::testing_ranks::Vector;

class SparseApi : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, SparseApi, testing::Values(1, 2, 3, 5));

TEST_P(SparseApi, TheResultGrowsOrWaits) {
  const int size = GetParam();
  on_ranks(size, [&](heddle_comm_t comm, int rank) {
    Vector input = mine_of(rank);
    const heddle_sparse in = input.view(kDimension);
    Vector grown;
    heddle_sparse out{};
    out.grow = grow;
    out.context = &grown;
    ASSERT_EQ(heddle_sparse_allreduce(&in, &out, HEDDLE_SUM, comm), HEDDLE_OK) << heddle_last_error();
    ASSERT_EQ(out.count, result_size(size));
    EXPECT_EQ(out.dimension, kDimension);
    expect_result(grown, size);
    // Arrays that are too small on one rank, and of the right size on the others.
    Vector fixed;
    fixed.indices.resize(result_size(size));
    fixed.values.resize(result_size(size));
    heddle_sparse small = fixed.view(0);
    if (rank == 0) small.capacity = result_size(size) - 1;
    const heddle_status status = heddle_sparse_allreduce(&in, &small, HEDDLE_SUM, comm);
    EXPECT_EQ(status, rank == 0 ? HEDDLE_ERR_CAPACITY : HEDDLE_OK);
    EXPECT_EQ(small.count, result_size(size));
    if (rank == 0) {
      EXPECT_TRUE(message_has("there is room for")) << heddle_last_error();
      EXPECT_EQ(heddle_sparse_fetch(&small, comm), HEDDLE_ERR_CAPACITY) << "still too small, and still there";
      small.capacity = result_size(size);
      EXPECT_EQ(heddle_sparse_fetch(&small, comm), HEDDLE_OK) << heddle_last_error();
    }
    EXPECT_EQ(heddle_sparse_fetch(&small, comm), HEDDLE_ERR_ARGUMENT);
    EXPECT_TRUE(message_has("waits to be fetched"));
    expect_result(fixed, size);
    ASSERT_EQ(heddle_barrier(comm), HEDDLE_OK);
  });
}

TEST_P(SparseApi, InAndOutMayBeOne) {
  const int size = GetParam();
  on_ranks(size, [&](heddle_comm_t comm, int rank) {
    Vector both = mine_of(rank);
    heddle_sparse v = both.view(kDimension);
    v.capacity = 0;  // `grow` gives the old arrays back
    v.grow = grow;
    v.context = &both;
    ASSERT_EQ(heddle_sparse_allreduce(&v, &v, HEDDLE_SUM, comm), HEDDLE_OK) << heddle_last_error();
    expect_result(both, size);
  });
}

// Entries everywhere but at multiples of seven, where the last rank alone has one: such results are written
// straight to where they belong, if there is room.
TEST_P(SparseApi, DenseStreamsGoWhereThereIsRoom) {
  const int size = GetParam();
  constexpr std::uint64_t kFull = 300'000;
  on_ranks(size, [&](heddle_comm_t comm, int rank) {
    const auto input = [&] {
      Vector v;
      for (std::uint64_t i = 0; i < kFull; ++i) {
        if (i % 7 == 0 && rank < size - 1) continue;
        v.indices.push_back(i);
        v.values.push_back(static_cast<float>(i % 5));
      }
      return v;
    };
    const auto expect_sums = [&](const Vector& v) {
      ASSERT_EQ(v.indices.size(), kFull);
      for (std::uint64_t i = 0; i < kFull; ++i) {
        ASSERT_EQ(v.indices[i], i);
        ASSERT_EQ(v.values[i], static_cast<float>(i % 5) * static_cast<float>(i % 7 == 0 ? 1 : size)) << i;
      }
    };
    Vector mine = input();
    const heddle_sparse in = mine.view(kFull);
    Vector fixed;
    fixed.indices.resize(kFull);
    fixed.values.resize(kFull);
    for (int round = 0; round < 2; ++round) {  // the first one finds out what memory there is
      heddle_sparse out = fixed.view(0);
      ASSERT_EQ(heddle_sparse_allreduce(&in, &out, HEDDLE_SUM, comm), HEDDLE_OK) << heddle_last_error();
      ASSERT_EQ(out.count, kFull);
      EXPECT_EQ(out.dimension, kFull);
      expect_sums(fixed);
      fixed.values.assign(kFull, 0);
    }
    Vector grown;
    heddle_sparse growing{};
    growing.grow = grow;
    growing.context = &grown;
    ASSERT_EQ(heddle_sparse_allreduce(&in, &growing, HEDDLE_SUM, comm), HEDDLE_OK) << heddle_last_error();
    expect_sums(grown);
    heddle_sparse small = fixed.view(0);
    small.capacity = kFull - 1;
    ASSERT_EQ(heddle_sparse_allreduce(&in, &small, HEDDLE_SUM, comm), HEDDLE_ERR_CAPACITY);
    EXPECT_EQ(small.count, kFull);
    small.capacity = kFull;
    ASSERT_EQ(heddle_sparse_fetch(&small, comm), HEDDLE_OK) << heddle_last_error();
    expect_sums(fixed);
    heddle_sparse refuses{};
    refuses.grow = [](heddle_sparse*, std::size_t) { return 1; };
    EXPECT_EQ(heddle_sparse_allreduce(&in, &refuses, HEDDLE_SUM, comm), HEDDLE_ERR_MEMORY);
    // In and out may be one, with room and without.
    Vector both = input();
    heddle_sparse v = both.view(kFull);
    v.grow = grow;
    v.context = &both;
    ASSERT_EQ(heddle_sparse_allreduce(&v, &v, HEDDLE_SUM, comm), HEDDLE_OK) << heddle_last_error();
    both.indices.resize(kFull);
    both.values.resize(kFull);
    expect_sums(both);
    Vector roomy = input();
    const std::size_t count = roomy.indices.size();
    roomy.indices.resize(kFull);
    roomy.values.resize(kFull);
    heddle_sparse w = roomy.view(kFull);
    w.count = count;
    ASSERT_EQ(heddle_sparse_allreduce(&w, &w, HEDDLE_SUM, comm), HEDDLE_OK) << heddle_last_error();
    expect_sums(roomy);
    heddle_sparse_stats stats{};
    ASSERT_EQ(heddle_sparse_get_stats(comm, &stats), HEDDLE_OK);
    if (size == 2) {
      EXPECT_STREQ(stats.algorithm, "bitmaps");
    }
  });
}

TEST_P(SparseApi, ToADenseVector) {
  const int size = GetParam();
  on_ranks(size, [&](heddle_comm_t comm, int rank) {
    Vector input;
    for (std::uint64_t i = 0; i < 3; ++i) {
      input.indices.push_back(static_cast<std::uint64_t>(rank) + 4 * i);
      input.values.push_back(1.5F);
    }
    const heddle_sparse in = input.view(100);
    std::vector<float> dense(100, 77);
    ASSERT_EQ(heddle_sparse_allreduce_dense(&in, dense.data(), HEDDLE_SUM, comm), HEDDLE_OK)
        << heddle_last_error();
    std::vector<float> expected(100);
    for (std::size_t r = 0; r < static_cast<std::size_t>(size); ++r) {
      for (std::size_t i = 0; i < 3; ++i)
        expected[r + 4 * i] += 1.5F;
    }
    EXPECT_EQ(dense, expected);
    heddle_sparse_stats stats{};
    ASSERT_EQ(heddle_sparse_get_stats(comm, &stats), HEDDLE_OK);
    EXPECT_EQ(stats.entries, static_cast<std::uint64_t>(3 * size));
    EXPECT_STRNE(stats.algorithm, "none");
    Vector nothing;
    const heddle_sparse empty = nothing.view(0);
    EXPECT_EQ(heddle_sparse_allreduce_dense(&empty, nullptr, HEDDLE_SUM, comm), HEDDLE_OK)
        << heddle_last_error();
    std::vector<float> mostly_zero(20'000);
    mostly_zero[static_cast<std::size_t>(rank) * 3] = 2;
    mostly_zero[19'999] = 1;
    ASSERT_EQ(heddle_sparse_allreduce_in_place(mostly_zero.data(), mostly_zero.size(), HEDDLE_FLOAT32, comm),
              HEDDLE_OK)
        << heddle_last_error();
    for (std::size_t i = 0; i < mostly_zero.size(); ++i)
      ASSERT_EQ(mostly_zero[i], i == 19'999 ? static_cast<float>(size)
                                : i % 3 == 0 && i < 3 * static_cast<std::size_t>(size) ? 2.0F
                                                                                       : 0.0F)
          << i;
  });
}

TEST_P(SparseApi, RequestsTellOfTooLittleRoom) {
  const int size = GetParam();
  on_ranks(size, [&](heddle_comm_t comm, int rank) {
    Vector input = mine_of(rank);
    const heddle_sparse in = input.view(kDimension);
    Vector grown;
    heddle_sparse out{};
    out.grow = grow;
    out.context = &grown;
    heddle_request_t request = nullptr;
    ASSERT_EQ(heddle_isparse_allreduce(&in, &out, HEDDLE_SUM, comm, &request), HEDDLE_OK)
        << heddle_last_error();
    ASSERT_EQ(heddle_wait(&request), HEDDLE_OK) << heddle_last_error();
    expect_result(grown, size);
    heddle_sparse_stats stats{};
    ASSERT_EQ(heddle_sparse_get_stats(comm, &stats), HEDDLE_OK);
    EXPECT_EQ(stats.result_entries, result_size(size));
    EXPECT_NE(stats.algorithm, nullptr);

    heddle_sparse none{};
    heddle_request_t persistent = nullptr;
    ASSERT_EQ(heddle_sparse_allreduce_init(&in, &none, HEDDLE_SUM, comm, &persistent), HEDDLE_OK);
    for (int round = 0; round < 3; ++round) {
      ASSERT_EQ(heddle_start(persistent), HEDDLE_OK) << heddle_last_error();
      heddle_status status = HEDDLE_OK;
      for (int done = 0; done == 0 && status == HEDDLE_OK;)
        status = heddle_test(&persistent, &done);
      EXPECT_EQ(status, HEDDLE_ERR_CAPACITY) << heddle_last_error();
      ASSERT_NE(persistent, nullptr);
      EXPECT_EQ(none.count, result_size(size));
    }
    grown = {};
    none.grow = grow;
    none.context = &grown;
    EXPECT_EQ(heddle_sparse_fetch(&none, comm), HEDDLE_OK);
    expect_result(grown, size);
    EXPECT_EQ(heddle_request_free(&persistent), HEDDLE_OK);
  });
}

TEST_P(SparseApi, WaitingForAllGoesOnAfterAFailure) {
  const int size = GetParam();
  on_ranks(size, [&](heddle_comm_t comm, int rank) {
    Vector input = mine_of(rank);
    const heddle_sparse in = input.view(kDimension);
    heddle_sparse none{};
    std::vector<int> data(1000, rank);
    int more = rank;
    heddle_request_t requests[5] = {};
    ASSERT_EQ(heddle_ibarrier(comm, &requests[0]), HEDDLE_OK) << heddle_last_error();
    ASSERT_EQ(heddle_isparse_allreduce(&in, &none, HEDDLE_SUM, comm, &requests[2]), HEDDLE_OK);
    ASSERT_EQ(heddle_iallreduce(HEDDLE_IN_PLACE, data.data(), data.size(), HEDDLE_INT32, HEDDLE_SUM, comm,
                                &requests[3]),
              HEDDLE_OK);
    ASSERT_EQ(heddle_allreduce_init(HEDDLE_IN_PLACE, &more, 1, HEDDLE_INT32, HEDDLE_SUM, comm, &requests[4]),
              HEDDLE_OK);
    ASSERT_EQ(heddle_start(requests[4]), HEDDLE_OK);
    EXPECT_EQ(heddle_waitall(5, requests), HEDDLE_ERR_CAPACITY);
    EXPECT_TRUE(message_has("heddle_sparse_fetch")) << heddle_last_error();
    for (int i = 0; i < 4; ++i)
      EXPECT_EQ(requests[i], nullptr) << i;
    EXPECT_EQ(data, std::vector<int>(1000, size * (size - 1) / 2));
    EXPECT_EQ(more, size * (size - 1) / 2);
    EXPECT_EQ(heddle_waitall(5, requests), HEDDLE_OK) << "nothing is active";
    ASSERT_NE(requests[4], nullptr) << "persistent";
    EXPECT_EQ(heddle_request_free(&requests[4]), HEDDLE_OK);
    EXPECT_EQ(heddle_waitall(0, nullptr), HEDDLE_OK);
    EXPECT_EQ(heddle_waitall(1, nullptr), HEDDLE_ERR_ARGUMENT);
  });
}

}  // namespace
