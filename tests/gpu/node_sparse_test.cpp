// Allreduces of sparse vectors in GPU memory, whose result is dense, by ranks that are threads of one process
// (node_test.cpp). What is right is heddle's own result for host memory.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "../api/ranks.hpp"
#include "cuda_memory.hpp"
#include "heddle/heddle_sparse.h"
#include "node_entries.hpp"
#include "node_ranks_of_threads.hpp"

namespace {

using heddle::test::Bytes;
using heddle::test::driver;
using heddle::test::Entries;
using heddle::test::kind_of;
using heddle::test::Memory;
using heddle::test::Node;
using heddle::test::TestMemory;
using heddle::test::width_of;
using heddle::testing_ranks::on_ranks;

// The same entries, and room for the result, on a GPU.
struct OnGpu {
  OnGpu(const Entries& entries, int rank, int device)
      : indices(*driver, kind_of(rank, 0), entries.indices.size(), device),
        values(*driver, kind_of(rank, 1), entries.values.size(), device),
        dense(*driver, kind_of(rank, 2), entries.size * width_of(entries.type), device) {
    indices.put(entries.indices.data(), entries.indices.size());
    values.put(entries.values.data(), entries.values.size());
    const Bytes dirt(entries.size * width_of(entries.type), 0xA5);
    dense.put(dirt.data(), dirt.size());
  }
  Bytes result(std::size_t bytes) const {
    Bytes got(bytes);
    dense.get(got.data(), bytes);
    return got;
  }
  const TestMemory indices;
  const TestMemory values;
  const TestMemory dense;
};

void compare_entries(Node& node, heddle_comm_t comm, int rank, int device, Entries mine,
                     heddle_op op = HEDDLE_SUM) {
  const OnGpu there(mine, rank, device);
  Bytes wanted(mine.size * width_of(mine.type));
  heddle_sparse host = mine.vector();
  OK(heddle_sparse_allreduce_dense(&host, wanted.data(), op, comm));
  heddle_sparse_stats by_host = {};
  OK(heddle_sparse_get_stats(comm, &by_host));
  heddle_sparse in = mine.vector(there.indices.data(), there.values.data());
  const int kernels = node.counted(
      "cuLaunchKernel", [&] { OK(heddle_sparse_allreduce_dense(&in, there.dense.data(), op, comm)); });
  heddle_sparse_stats by_gpu = {};
  OK(heddle_sparse_get_stats(comm, &by_gpu));
  EXPECT_GE(kernels, by_host.entries > 0 ? node.ranks() : 0) << "by images";
  EXPECT_EQ(std::string(by_gpu.algorithm), "gpu");
  EXPECT_EQ(by_gpu.entries, by_host.entries);
  EXPECT_EQ(by_gpu.bytes_sent, mine.indices.size() + mine.values.size());
  ASSERT_EQ(there.result(wanted.size()), wanted) << "type " << mine.type << ", " << mine.number << " entries";
}

void sparse_sums(int ranks, int devices) {
  Node node(ranks);
  on_ranks(ranks, [&](heddle_comm_t comm, int rank) {
    const int device = rank % devices;
    const TestMemory one(*driver, Memory::device, 4, device);
    ASSERT_NE(node.begin(comm, one.data()), -1);
    const auto r = static_cast<std::size_t>(rank);
    for (const heddle_dtype type :
         {HEDDLE_FLOAT16, HEDDLE_BFLOAT16, HEDDLE_FLOAT32, HEDDLE_FLOAT64, HEDDLE_INT32, HEDDLE_INT64}) {
      for (const heddle_op op : {HEDDLE_SUM, HEDDLE_MIN, HEDDLE_MAX})
        compare_entries(node, comm, rank, device, {5'000, 300 * r, type, rank % 2 == 1, rank}, op);
    }
    // None at all; and more than the scratch takes at once, on one rank most.
    for (const heddle_op op : {HEDDLE_SUM, HEDDLE_MIN}) {
      compare_entries(node, comm, rank, device, {1, 0, HEDDLE_FLOAT32, false, rank}, op);
      compare_entries(node, comm, rank, device, {20'000, 4'500 + 4'200 * r, HEDDLE_FLOAT32, false, rank}, op);
      compare_entries(node, comm, rank, device, {6'000, 6'000 - r, HEDDLE_FLOAT64, true, rank}, op);
    }
  });
}

TEST(GpuNodeSparse, SumsInOneContext) {
  for (int ranks = 2; ranks <= 3; ++ranks)
    sparse_sums(ranks, 1);
}

TEST(GpuNodeSparse, SumsOnTwoDevices) {
  sparse_sums(3, 2);
}

// The sum begins with +0 wherever it is made, so it has no -0, also where all ranks have one; a minimum has.
TEST(GpuNodeSparse, SumsOfMinusZero) {
  for (const int devices : {1, 2}) {
    Node node(2);
    on_ranks(2, [&](heddle_comm_t comm, int rank) {
      const TestMemory one(*driver, Memory::device, 4, rank % devices);
      ASSERT_NE(node.begin(comm, one.data()), -1);
      Entries mine(100, rank == 0 ? 100 : 50, HEDDLE_FLOAT32, false, rank);
      const std::vector<float> zeros(mine.number, -0.0F);
      std::memcpy(mine.values.data(), zeros.data(), mine.values.size());
      const OnGpu there(mine, rank, rank % devices);
      const heddle_sparse in = mine.vector(there.indices.data(), there.values.data());
      for (const heddle_op op : {HEDDLE_SUM, HEDDLE_MIN}) {
        OK(heddle_sparse_allreduce_dense(&in, there.dense.data(), op, comm));
        heddle_sparse_stats stats = {};
        OK(heddle_sparse_get_stats(comm, &stats));
        EXPECT_EQ(std::string(stats.algorithm), "gpu");
        const Bytes got = there.result(100 * sizeof(float));
        for (std::size_t i = 0; i < got.size(); ++i)
          ASSERT_EQ(got[i], op == HEDDLE_MIN && i % 4 == 3 ? 0x80 : 0) << i;
      }
    });
  }
}

// Programs that sum nothing but sparse vectors come to the GPUs as well.
TEST(GpuNodeSparse, BeginsBySparseCallsAlone) {
  Node node(2);
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    const Entries mine(100, 10, HEDDLE_FLOAT32, false, rank);
    const OnGpu there(mine, rank, 0);
    const heddle_sparse in = mine.vector(there.indices.data(), there.values.data());
    int kernels = 0;
    for (int i = 0; i < 20 && kernels == 0; ++i) {
      kernels = node.counted("cuLaunchKernel", [&] {
        OK(heddle_sparse_allreduce_dense(&in, there.dense.data(), HEDDLE_SUM, comm));
      });
    }
    EXPECT_GT(kernels, 0);
  });
}

TEST(GpuNodeSparse, VectorsThatMayBeMostlyZero) {
  Node node(3);
  on_ranks(3, [&](heddle_comm_t comm, int rank) {
    const TestMemory both(*driver, kind_of(rank, 0), 20'000);
    std::vector<float> mine(5'000);
    mine[7 + static_cast<std::size_t>(rank)] = 1.5F;
    int kernels = 0;
    for (int i = 0; i < 20 && kernels == 0; ++i) {
      both.put(mine.data(), 20'000);
      kernels = node.counted("cuLaunchKernel", [&] {
        OK(heddle_sparse_allreduce_in_place(both.data(), 5'000, HEDDLE_FLOAT32, comm));
      });
      std::vector<float> got(5'000);
      both.get(got.data(), 20'000);
      EXPECT_EQ(std::vector<float>(got.begin() + 6, got.begin() + 11),
                (std::vector<float>{0, 1.5F, 1.5F, 1.5F, 0}));
    }
    EXPECT_GT(kernels, 0);
    heddle_sparse_stats stats = {};
    OK(heddle_sparse_get_stats(comm, &stats));
    EXPECT_EQ(std::string(stats.algorithm), "dense");
  });
}

// One rank's mistake is everybody's, in the words that there are for host memory, and the next call is served
// again.
TEST(GpuNodeSparse, BrokenEntriesAndDisagreement) {
  Node node(3);
  on_ranks(3, [&](heddle_comm_t comm, int rank) {
    const Entries mine(1'000, 500, HEDDLE_INT32, false, rank);
    const OnGpu there(mine, rank, 0);
    ASSERT_NE(node.begin(comm, there.dense.data()), -1);
    const heddle_sparse good = mine.vector(there.indices.data(), there.values.data());
    const auto refused = [&](const heddle_sparse& in, const char* why, heddle_op op = HEDDLE_SUM) {
      ASSERT_EQ(heddle_sparse_allreduce_dense(&in, there.dense.data(), op, comm), HEDDLE_ERR_ARGUMENT) << why;
      compare_entries(node, comm, rank, 0, mine);
    };
    for (const std::uint32_t index : {0U, 1'000U}) {  // not after the one before; not less than the dimension
      const std::size_t at = 499 * sizeof index;
      there.indices.put(&index, sizeof index, rank == 1 ? at : 0);
      if (rank != 1) there.indices.put(mine.indices.data(), sizeof index);
      refused(good, "broken entries");
      refused(good, "broken entries of a minimum", HEDDLE_MIN);
      there.indices.put(mine.indices.data(), mine.indices.size());
    }
    heddle_sparse longer = good;  // in bytes, of which there are more than numbers, nothing is wrong with it
    if (rank == 1) longer.count = SIZE_MAX / 4 + 9;
    refused(longer, "no count");
    refused(longer, "no count of a minimum", HEDDLE_MIN);
    heddle_sparse shorter = good;
    shorter.dimension = rank == 2 ? 999 : 1'000;
    shorter.count = 400;
    refused(shorter, "another dimension");
    refused(good, "an operation that there is not", rank == 1 ? HEDDLE_PROD : HEDDLE_SUM);
  });
}

// What GPUs do not serve goes by images: host memory on one rank, arrays that are not aligned.
TEST(GpuNodeSparse, WhatTheyDoNotServe) {
  Node node(2);
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    Entries mine(1'000, 200, HEDDLE_INT32, false, rank);
    const OnGpu there(mine, rank, 0);
    ASSERT_NE(node.begin(comm, there.dense.data()), -1);
    Bytes wanted(4'000);
    const TestMemory moved(*driver, Memory::device, mine.values.size() + 1);
    moved.put(mine.values.data(), mine.values.size(), 1);
    const heddle_sparse host = mine.vector();
    const heddle_sparse good = mine.vector(there.indices.data(), there.values.data());
    const heddle_sparse shifted = mine.vector(there.indices.data(), moved.as<char>() + 1);
    for (const heddle_op op : {HEDDLE_SUM, HEDDLE_MAX}) {
      for (const heddle_sparse& in : {rank == 0 ? host : good, rank == 1 ? shifted : good}) {
        OK(heddle_sparse_allreduce_dense(&host, wanted.data(), op, comm));
        OK(heddle_sparse_allreduce_dense(&in, there.dense.data(), op, comm));
        EXPECT_EQ(there.result(wanted.size()), wanted);
        heddle_sparse_stats stats = {};
        OK(heddle_sparse_get_stats(comm, &stats));
        EXPECT_NE(std::string(stats.algorithm), "gpu");
      }
      compare_entries(node, comm, rank, 0, mine, op);
    }
  });
}

}  // namespace
