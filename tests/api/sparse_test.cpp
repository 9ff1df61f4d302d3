// Sparse vectors through libheddle.so.
#include "heddle/heddle_sparse.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "ranks.hpp"

namespace {

using heddle::testing_ranks::on_ranks;

// Entries with arrays of their own.
struct Vector {
  std::vector<std::uint64_t> indices;
  std::vector<float> values;

  heddle_sparse view(std::uint64_t dimension) {
    heddle_sparse v{};
    v.dimension = dimension;
    v.count = indices.size();
    v.capacity = indices.size();
    v.index_type = HEDDLE_INDEX64;
    v.value_type = HEDDLE_FLOAT32;
    v.indices = indices.data();
    v.values = values.data();
    return v;
  }
};

bool message_has(const char* text) {
  return std::string(heddle_last_error()).find(text) != std::string::npos;
}

// Rank r has 10 r to 10 r + 14: neighbours share five.
Vector mine_of(int rank) {
  Vector v;
  for (int i = 0; i < 15; ++i) {
    v.indices.push_back(static_cast<std::uint64_t>(10 * rank + i) << 30);
    v.values.push_back(static_cast<float>(i));
  }
  return v;
}
constexpr std::uint64_t kDimension = std::uint64_t{1} << 40;
std::size_t result_size(int size) {
  return 10 * static_cast<std::size_t>(size) + 5;
}

int grow(heddle_sparse* self, std::size_t entries) {
  auto* v = static_cast<Vector*>(self->context);
  v->indices.resize(entries);
  v->values.resize(entries);
  self->indices = v->indices.data();
  self->values = v->values.data();
  self->capacity = entries;
  return 0;
}

void expect_result(const Vector& v, int size) {
  ASSERT_EQ(v.indices.size(), result_size(size));
  for (std::size_t i = 0; i < v.indices.size(); ++i) {
    ASSERT_EQ(v.indices[i], std::uint64_t{i} << 30);
    const std::size_t low = i % 10;
    const float own = i >= result_size(size) - 5 ? 0.0F : static_cast<float>(low);
    const float shared = low < 5 && i >= 10 ? static_cast<float>(low + 10) : 0.0F;
    ASSERT_EQ(v.values[i], own + shared) << i;
  }
}

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

// Entries everywhere but at multiples of seven, where the last rank alone has one: such results are written straight to where they
// belong, if there is room.
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

// The last rank calls `wrong`, the others `right`: it hears `own`, they hear `others`, and the communicator goes on.
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
