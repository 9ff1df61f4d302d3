// What callers do wrong with sparse vectors: each is named, and where ranks wait for one another told to all.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <vector>

#include "heddle/heddle_sparse.h"
#include "ranks.hpp"
#include "sparse_vectors.hpp"

namespace {

using heddle::testing_ranks::expect_result;
using heddle::testing_ranks::grow;
using heddle::testing_ranks::kDimension;
using heddle::testing_ranks::message_has;
using heddle::testing_ranks::mine_of;
using heddle::testing_ranks::on_ranks;
using heddle::testing_ranks::Vector;

// The last rank calls `wrong`, the others `right`: it hears `own`, they hear `others`, and the communicator
// goes on.
using Call = std::function<heddle_status(heddle_comm_t)>;
void expect_told(heddle_comm_t comm, bool last, const Call& right, const Call& wrong, const char* own,
                 const char* others) {
  EXPECT_EQ((last ? wrong : right)(comm), HEDDLE_ERR_ARGUMENT) << own;
  EXPECT_TRUE(message_has(last ? own : others)) << heddle_last_error() << ", not " << own;
  EXPECT_EQ(heddle_barrier(comm), HEDDLE_OK) << own;
}

TEST(SparseVectors, TheMistakesOfOneRankAreToldToAll) {
  ASSERT_EQ(::setenv("HEDDLE_TIMEOUT", "10", 1), 0);
  on_ranks(3, [&](heddle_comm_t comm, int rank) {
    Vector input = mine_of(rank);
    const heddle_sparse in = input.view(kDimension);
    Vector grown;
    heddle_sparse out{};
    out.grow = grow;
    out.context = &grown;
    const auto sums = [&](const heddle_sparse* from, heddle_sparse* to, heddle_op op) -> Call {
      return [=](heddle_comm_t c) { return heddle_sparse_allreduce(from, to, op, c); };
    };
    const Call right = sums(&in, &out, HEDDLE_SUM);
    const char* const others = "rank 2 passed arguments that are refused";
    const auto told = [&](const Call& wrong, const char* own) {
      expect_told(comm, rank == 2, right, wrong, own, others);
    };
    told(sums(&in, &out, HEDDLE_PROD), "HEDDLE_SUM, HEDDLE_MIN, HEDDLE_MAX");
    told(sums(nullptr, &out, HEDDLE_SUM), "in is null");
    told(sums(&in, nullptr, HEDDLE_SUM), "out is null");
    heddle_sparse bad = in;
    bad.value_type = HEDDLE_INT8;
    told(sums(&bad, &out, HEDDLE_SUM), "int8 is not a type of sparse values");
    Vector few;
    few.indices = {1, 2};
    few.values = {1, 2};
    const heddle_sparse small = few.view(100);
    std::vector<float> dense(100);
    const auto to = [&](float* vector, heddle_op op) -> Call {
      return [&small, vector, op](heddle_comm_t c) {
        return heddle_sparse_allreduce_dense(&small, vector, op, c);
      };
    };
    const Call vector = to(dense.data(), HEDDLE_SUM);
    expect_told(comm, rank == 2, vector, to(nullptr, HEDDLE_SUM), "dense is null", others);
    expect_told(comm, rank == 2, vector, to(dense.data(), HEDDLE_PROD), "HEDDLE_MIN", others);
    // Another call of this kind, which the others would wait for in vain.
    const char* const mixed =
        "rank 2 called heddle_sparse_allreduce_dense, but rank 0 heddle_sparse_allreduce;";
    expect_told(comm, rank == 2, sums(&small, &out, HEDDLE_SUM), vector, mixed, mixed);
    const Call in_place = [&](heddle_comm_t c) {
      return heddle_sparse_allreduce_in_place(dense.data(), dense.size(), HEDDLE_FLOAT32, c);
    };
    const char* const other =
        "called heddle_sparse_allreduce_in_place, but rank 0 heddle_sparse_allreduce_dense;";
    expect_told(comm, rank == 2, vector, in_place, other, other);
    ASSERT_EQ(right(comm), HEDDLE_OK) << heddle_last_error();
    expect_result(grown, 3);
  });
  ::unsetenv("HEDDLE_TIMEOUT");
}

TEST(SparseVectors, WhatIsReadAgainOrLaterStaysApart) {
  on_ranks(2, [](heddle_comm_t comm, int rank) {
    Vector both = mine_of(rank);
    heddle_sparse v = both.view(kDimension);
    heddle_request_t request = nullptr;
    EXPECT_EQ(heddle_sparse_allreduce_init(&v, &v, HEDDLE_SUM, comm, &request), HEDDLE_ERR_ARGUMENT);
    EXPECT_TRUE(message_has("out arrays of its own")) << heddle_last_error();
    EXPECT_EQ(request, nullptr);
    heddle_sparse out = v;
    out.indices = nullptr;
    out.capacity = 0;  // `grow` may give the arrays back
    EXPECT_EQ(heddle_sparse_allreduce_init(&v, &out, HEDDLE_SUM, comm, &request), HEDDLE_ERR_ARGUMENT);
    out = v;
    out.capacity = SIZE_MAX;  // in bytes more than numbers
    EXPECT_EQ(heddle_sparse_allreduce_init(&v, &out, HEDDLE_SUM, comm, &request), HEDDLE_ERR_ARGUMENT);
    ASSERT_EQ(heddle_isparse_allreduce(&v, &v, HEDDLE_MAX, comm, &request), HEDDLE_OK) << "read once";
    EXPECT_EQ(heddle_wait(&request), HEDDLE_ERR_CAPACITY);

    std::vector<float> dense{1, 2, 3, 4, 0, 0, 0, 0};
    std::vector<std::uint32_t> indices{0, 1, 2, 3, 0, 0, 0, 0};
    heddle_sparse in{};
    in.dimension = dense.size();
    in.count = 4;
    in.value_type = HEDDLE_FLOAT32;
    in.indices = indices.data();
    in.values = dense.data();
    for (void* const to : {static_cast<void*>(dense.data()), static_cast<void*>(dense.data() + 3)}) {
      EXPECT_EQ(heddle_sparse_allreduce_dense(&in, to, HEDDLE_SUM, comm), HEDDLE_ERR_ARGUMENT);
      EXPECT_TRUE(message_has("dense overlaps in->values")) << heddle_last_error();
    }
    EXPECT_EQ(heddle_sparse_allreduce_dense(&in, indices.data(), HEDDLE_SUM, comm), HEDDLE_ERR_ARGUMENT);
    EXPECT_TRUE(message_has("dense overlaps in->indices")) << heddle_last_error();
    EXPECT_EQ(dense, (std::vector<float>{1, 2, 3, 4, 0, 0, 0, 0}));
    std::vector<float> apart(dense.size());
    ASSERT_EQ(heddle_sparse_allreduce_dense(&in, apart.data(), HEDDLE_SUM, comm), HEDDLE_OK);
    EXPECT_EQ(apart, (std::vector<float>{2, 4, 6, 8, 0, 0, 0, 0}));
  });
}

TEST(SparseVectors, AreSortedAndChecked) {
  Vector v;
  v.indices = {7, 3, 7, 0};
  v.values = {1, 2, 4, 8};
  heddle_sparse view = v.view(8);
  EXPECT_EQ(heddle_sparse_check(&view), HEDDLE_ERR_ARGUMENT);
  EXPECT_TRUE(message_has("heddle_sparse_sort")) << heddle_last_error();
  ASSERT_EQ(heddle_sparse_sort(&view), HEDDLE_OK) << heddle_last_error();
  EXPECT_EQ(view.count, 3U);
  EXPECT_EQ(v.indices[0], 0U);
  EXPECT_EQ(v.indices[1], 3U);
  EXPECT_EQ(v.values[2], 5.0F);
  EXPECT_EQ(heddle_sparse_check(&view), HEDDLE_OK);
  view.dimension = 7;
  EXPECT_EQ(heddle_sparse_check(&view), HEDDLE_ERR_ARGUMENT);
  EXPECT_TRUE(message_has("index 7 of entry 2 is not less than the dimension, 7")) << heddle_last_error();
}

TEST(SparseVectors, WrongArgumentsAreNamed) {
  on_ranks(1, [](heddle_comm_t comm, int) {
    Vector input = mine_of(0);
    const heddle_sparse good = input.view(kDimension);
    heddle_sparse out{};
    heddle_request_t request = nullptr;
    const auto refused = [&](const heddle_sparse* in, heddle_op op, const char* why) {
      EXPECT_EQ(heddle_sparse_allreduce(in, &out, op, comm), HEDDLE_ERR_ARGUMENT);
      EXPECT_TRUE(message_has(why)) << heddle_last_error();
      EXPECT_EQ(heddle_isparse_allreduce(in, &out, op, comm, &request), HEDDLE_ERR_ARGUMENT);
      EXPECT_EQ(request, nullptr);
    };
    refused(nullptr, HEDDLE_SUM, "in is null");
    refused(&good, HEDDLE_PROD, "HEDDLE_SUM, HEDDLE_MIN, HEDDLE_MAX");
    heddle_sparse bad = good;
    bad.index_type = HEDDLE_INDEX32;
    refused(&bad, HEDDLE_SUM, "needs HEDDLE_INDEX64");
    bad = good;
    bad.value_type = HEDDLE_INT8;
    refused(&bad, HEDDLE_SUM, "int8 is not a type of sparse values");
    bad.value_type = HEDDLE_FLOAT8_E5M2;
    refused(&bad, HEDDLE_SUM, "float8_e5m2 is not a type of sparse values");
    bad = good;
    bad.values = nullptr;
    refused(&bad, HEDDLE_SUM, "in->values is null and count is 15");
    EXPECT_EQ(heddle_sparse_allreduce(&good, nullptr, HEDDLE_SUM, comm), HEDDLE_ERR_ARGUMENT);
    EXPECT_EQ(heddle_sparse_allreduce_dense(&good, nullptr, HEDDLE_SUM, comm), HEDDLE_ERR_ARGUMENT);
    EXPECT_EQ(heddle_sparse_get_stats(comm, nullptr), HEDDLE_ERR_ARGUMENT);
    EXPECT_EQ(heddle_sparse_allreduce_in_place(nullptr, 3, HEDDLE_FLOAT32, comm), HEDDLE_ERR_ARGUMENT);
    EXPECT_TRUE(message_has("buffer is null and count is 3")) << heddle_last_error();
    void* const marker = const_cast<void*>(HEDDLE_IN_PLACE);
    EXPECT_EQ(heddle_sparse_allreduce_in_place(marker, 3, HEDDLE_FLOAT32, comm), HEDDLE_ERR_ARGUMENT);
    EXPECT_TRUE(message_has("buffer is HEDDLE_IN_PLACE")) << heddle_last_error();
    heddle_sparse refuses{};
    refuses.grow = [](heddle_sparse*, std::size_t) { return 1; };
    EXPECT_EQ(heddle_sparse_allreduce(&good, &refuses, HEDDLE_SUM, comm), HEDDLE_ERR_MEMORY);
    EXPECT_TRUE(message_has("15 entries")) << heddle_last_error();
    EXPECT_EQ(refuses.count, 15U);
    Vector later;
    refuses.grow = grow;
    refuses.context = &later;
    EXPECT_EQ(heddle_sparse_fetch(&refuses, comm), HEDDLE_OK) << heddle_last_error();
    expect_result(later, 1);
  });
}

}  // namespace
