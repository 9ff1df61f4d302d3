// Allreduces of sparse vectors in GPU memory, whose result is sparse, by ranks that are threads of one
// process (node_test.cpp). What is right is heddle's own result for host memory: its entries, and the values
// of its dense sum.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "../api/ranks.hpp"
#include "cuda_memory.hpp"
#include "heddle/heddle_sparse.h"
#include "node_entries.hpp"
#include "node_merge.hpp"
#include "node_ranks_of_threads.hpp"

namespace {

using heddle::test::Arrays;
using heddle::test::Bytes;
using heddle::test::compare;
using heddle::test::driver;
using heddle::test::Entries;
using heddle::test::expect_same;
using heddle::test::Memory;
using heddle::test::Node;
using heddle::test::TestMemory;
using heddle::test::Wanted;
using heddle::test::width_of;
using heddle::testing_ranks::on_ranks;

void merged_sums(int ranks, int devices) {
  Node node(ranks);
  on_ranks(ranks, [&](heddle_comm_t comm, int rank) {
    const int device = rank % devices;
    const TestMemory one(*driver, Memory::device, 4, device);
    ASSERT_NE(node.begin(comm, one.data()), -1);
    const auto r = static_cast<std::size_t>(rank);
    for (const heddle_dtype type :
         {HEDDLE_FLOAT16, HEDDLE_BFLOAT16, HEDDLE_FLOAT32, HEDDLE_FLOAT64, HEDDLE_INT32, HEDDLE_INT64}) {
      const Entries mine(5'000, 300 * r, type, rank % 2 == 1, rank);
      for (const heddle_op op : {HEDDLE_MIN, HEDDLE_MAX})
        compare(node, comm, rank, device, mine, 17 * r, op);
      if (ranks > 3 && width_of(type) == 2) continue;  // the host rounds sums of two and two
      compare(node, comm, rank, device, mine, 17 * r);
    }
    // None at all; and more than the scratch takes at once, on one rank most, or on one alone.
    compare(node, comm, rank, device, {1, 0, HEDDLE_FLOAT32, false, rank});
    for (const heddle_op op : {HEDDLE_SUM, HEDDLE_MAX})
      compare(node, comm, rank, device, {20'000, 4'500 + 4'200 * r, HEDDLE_FLOAT32, false, rank}, 100'000,
              op);
    compare(node, comm, rank, device, {9'000, rank == 1 ? 9'000U : 300U, HEDDLE_FLOAT64, rank != 1, rank});
  });
}

TEST(GpuNodeMerge, SumsInOneContext) {
  for (int ranks = 2; ranks <= 4; ++ranks)
    merged_sums(ranks, 1);
}

// And puts the result to everybody's arrays, of which a kernel takes eight.
TEST(GpuNodeMerge, OneRankMergesForAllInItsContext) {
  for (const int ranks : {2, 3, 8, 10}) {
    Node node(ranks);
    on_ranks(ranks, [&](heddle_comm_t comm, int rank) {
      const TestMemory one(*driver, Memory::device, 4);
      ASSERT_NE(node.begin(comm, one.data()), -1);
      const Entries mine(5'000, 700, HEDDLE_INT32, rank % 2 == 1, rank);
      const int kernels = node.counted("cuLaunchKernel", [&] { compare(node, comm, rank, 0, mine, 10); });
      EXPECT_EQ(kernels, ranks - 1 + (ranks - 1) / 8);
    });
  }
}

TEST(GpuNodeMerge, SumsOnTwoDevices) {
  merged_sums(3, 2);
}

// Of -0 and +0, and of a number and NaN, the first rank's is taken; an entry that one rank has is nobody's to
// change, whatever its bits are.
TEST(GpuNodeMerge, MinimaAndMaximaOfWhatIsNoNumber) {
  Node node(2);
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    const TestMemory one(*driver, Memory::device, 4);
    ASSERT_NE(node.begin(comm, one.data()), -1);
    const std::uint32_t special[] = {0,           0x80000000U, 0x7FC12345U, 0xFFC54321U, 0x7FA00001U,
                                     0x7F800000U, 0xFF800000U, 1,           0x3F800000U};
    for (const heddle_dtype type : {HEDDLE_FLOAT32, HEDDLE_BFLOAT16, HEDDLE_FLOAT16}) {
      Entries mine(1'000, 600, type, false, rank);
      for (std::size_t i = 0; i < mine.number; ++i) {
        const std::uint32_t bits = special[(i * 7 + static_cast<std::size_t>(rank) * 5 + i / 9) % 9];
        // The upper half is a bfloat16 and, shifted to its exponent, a float16.
        const std::uint32_t half = (bits >> 16 & 0x8000U) | (bits >> 13 & 0x7FFFU);
        const std::uint32_t stored = type == HEDDLE_FLOAT32    ? bits
                                     : type == HEDDLE_BFLOAT16 ? bits >> 16
                                                               : half;
        std::memcpy(&mine.values[i * width_of(type)], &stored, width_of(type));
      }
      for (const heddle_op op : {HEDDLE_MIN, HEDDLE_MAX})
        compare(node, comm, rank, 0, mine, 0, op);
    }
  });
}

// Programs that sum nothing but sparse vectors come to the GPUs as well, also where the result does not fit
// on one rank.
TEST(GpuNodeMerge, BeginsBySparseCallsAlone) {
  for (const bool fits : {true, false}) {
    Node node(2);
    on_ranks(2, [&](heddle_comm_t comm, int rank) {
      const Entries mine(100, 10, HEDDLE_FLOAT32, false, rank);
      const Arrays from(mine, rank, 0);
      const Arrays to(mine, 20, rank, 0);
      const heddle_sparse in = from.in(mine);
      const bool is_small = !fits && rank == 1;
      int kernels = 0;
      for (int i = 0; i < 20 && kernels == 0; ++i) {
        heddle_sparse out = to.out();
        if (is_small) out.capacity = 1;
        kernels = node.counted("cuLaunchKernel", [&] {
          ASSERT_EQ(heddle_sparse_allreduce(&in, &out, HEDDLE_SUM, comm),
                    is_small ? HEDDLE_ERR_CAPACITY : HEDDLE_OK);
        });
      }
      EXPECT_GT(kernels, 0);
    });
  }
}

// Work on the default stream that makes the input; nobody waits for it.
TEST(GpuNodeMerge, ComesAfterTheDefaultStream) {
  for (const int devices : {1, 2}) {
    Node node(2);
    on_ranks(2, [&](heddle_comm_t comm, int rank) {
      const int device = rank % devices;
      const Entries mine(1'000, 300, HEDDLE_FLOAT32, false, rank);
      const TestMemory one(*driver, Memory::device, 4, device);
      ASSERT_NE(node.begin(comm, one.data()), -1);
      const Wanted wanted(mine, comm);
      const Arrays made(mine, rank, device);
      const Arrays from(mine, mine.number, rank, device);
      const Arrays to(mine, wanted.count, rank, device);
      heddle_sparse in = made.in(mine);
      heddle_sparse out = to.out();
      OK(heddle_sparse_allreduce(&in, &out, HEDDLE_SUM, comm));  // and has its memory
      const CUcontext before = driver->current();
      driver->set_current(driver->primary(device));
      const auto copy = [](const TestMemory& there, const TestMemory& here, std::size_t bytes) {
        driver->call<PFN_cuMemcpyDtoDAsync_v3020>(
            "cuMemcpyDtoDAsync_v2", reinterpret_cast<CUdeviceptr>(there.data()),
            reinterpret_cast<CUdeviceptr>(here.data()), bytes, CU_STREAM_LEGACY);
      };
      copy(from.indices, made.indices, mine.indices.size());
      copy(from.values, made.values, mine.values.size());
      driver->set_current(before);
      in = from.in(mine);
      OK(heddle_sparse_allreduce(&in, &out, HEDDLE_SUM, comm));
      expect_same(wanted, out, mine, device);
      // Entries that are not there yet break the contract, and images come late enough.
      heddle_sparse_stats stats = {};
      OK(heddle_sparse_get_stats(comm, &stats));
      EXPECT_EQ(std::string(stats.algorithm), "gpu");
    });
  }
}

// ---- Room

// Makes arrays on a GPU, or says that it cannot.
struct Growing {
  static int grow(heddle_sparse* self, std::size_t entries) {
    auto& growing = *static_cast<Growing*>(self->context);
    ++growing.calls;
    growing.asked = entries;
    if (!growing.can) return 1;
    growing.arrays = std::make_unique<Arrays>(growing.like, entries, 0, 0);
    self->indices = growing.arrays->indices.data();
    self->values = growing.arrays->values.data();
    self->capacity = entries;
    return 0;
  }
  const Entries& like;
  bool can;
  int calls = 0;
  std::size_t asked = 0;
  std::unique_ptr<Arrays> arrays;
};

// As on the host: what the call says, what becomes of `count`, and what can be fetched, into arrays on a GPU
// too.
void check_room(int little) {
  Node node(2);
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    Entries mine(5'000, 700, HEDDLE_FLOAT32, false, rank);
    const Arrays from(mine, rank, 0);
    const TestMemory one(*driver, Memory::device, 4);
    ASSERT_NE(node.begin(comm, one.data()), -1);
    const Wanted wanted(mine, comm);
    const Arrays to(mine, wanted.count, rank, 0);
    for (const std::size_t capacity : {std::size_t{0}, std::size_t{5}, wanted.count - 1}) {
      const heddle_sparse given[] = {mine.vector(), from.in(mine)};
      std::string said[2];
      for (int k = 0; k < 2; ++k) {
        heddle_sparse out = to.out();
        if (rank == little) out.capacity = capacity;
        const heddle_status status = heddle_sparse_allreduce(&given[k], &out, HEDDLE_SUM, comm);
        EXPECT_EQ(status, rank == little ? HEDDLE_ERR_CAPACITY : HEDDLE_OK);
        EXPECT_EQ(out.count, wanted.count);
        if (rank != little) expect_same(wanted, out, mine);
        if (rank != little) continue;
        said[k] = heddle_last_error();
        const Arrays fetched(mine, wanted.count, rank, 0);
        out = fetched.out();
        OK(heddle_sparse_fetch(&out, comm));
        expect_same(wanted, out, mine);
      }
      EXPECT_EQ(said[0], said[1]);
    }
  });
}

// On the rank that merges for both, and on the other one.
TEST(GpuNodeMerge, TooLittleRoom) {
  for (const int little : {0, 1})
    check_room(little);
}

TEST(GpuNodeMerge, GrowsOnce) {
  Node node(2);
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    Entries mine(5'000, 700, HEDDLE_FLOAT32, true, rank);
    const Arrays from(mine, rank, 0);
    const TestMemory one(*driver, Memory::device, 4);
    ASSERT_NE(node.begin(comm, one.data()), -1);
    const Wanted wanted(mine, comm);
    for (const bool can : {true, false}) {
      Growing growing{mine, can || rank == 0, 0, 0, nullptr};
      const Arrays little(mine, 10, rank, 0);
      heddle_sparse out = little.out();
      out.grow = &Growing::grow;
      out.context = &growing;
      const heddle_sparse in = from.in(mine);
      EXPECT_EQ(heddle_sparse_allreduce(&in, &out, HEDDLE_SUM, comm),
                growing.can ? HEDDLE_OK : HEDDLE_ERR_MEMORY);
      EXPECT_EQ(growing.calls, 1);
      EXPECT_EQ(growing.asked, wanted.count);
      const Arrays to(mine, wanted.count, rank, 0);
      if (!growing.can) {
        out = to.out();
        OK(heddle_sparse_fetch(&out, comm));
      }
      expect_same(wanted, out, mine);
      // Large enough from here on.
      OK(heddle_sparse_allreduce(&in, &out, HEDDLE_SUM, comm));
      EXPECT_EQ(growing.calls, 1);
      expect_same(wanted, out, mine);
    }
  });
}

// The result over the input, all or a part of it, in the host's memory, and in arrays that are not aligned:
// still by the GPUs.
TEST(GpuNodeMerge, WhereverTheResultIsToBe) {
  for (const int devices : {1, 2}) {
    Node node(2);
    on_ranks(2, [&](heddle_comm_t comm, int rank) {
      const int device = rank % devices;
      Entries mine(3'000, 800, HEDDLE_INT64, false, rank);
      const TestMemory one(*driver, Memory::device, 4, device);
      ASSERT_NE(node.begin(comm, one.data()), -1);
      const Wanted wanted(mine, comm);
      const Arrays both(mine, 2 * wanted.count, rank, device);
      const Arrays other(mine, wanted.count, rank, device);
      Bytes indices(wanted.indices.size());
      Bytes values(wanted.values.size());
      for (int where = 0; where < 5; ++where) {
        both.put(mine);
        const heddle_sparse in = both.in(mine);
        heddle_sparse out = both.out();
        if (where == 1) out = mine.vector(indices.data(), values.data());
        if (where == 2) out.indices = other.indices.data();
        if (where == 3) out.values = other.values.data();
        if (where == 4) out.indices = both.indices.as<char>() + 402;
        out.capacity = wanted.count;
        const int kernels =
            node.counted("cuLaunchKernel", [&] { OK(heddle_sparse_allreduce(&in, &out, HEDDLE_SUM, comm)); });
        EXPECT_GT(kernels, 0) << where;
        expect_same(wanted, out, mine, where == 1 ? -1 : device);
      }
    });
  }
}

// ---- What goes wrong

// One rank's mistake is everybody's, in the words that there are for host memory, and the next call is served
// again.
TEST(GpuNodeMerge, BrokenEntriesAndDisagreement) {
  Node node(3);
  on_ranks(3, [&](heddle_comm_t comm, int rank) {
    const Entries mine(1'000, 500, HEDDLE_INT32, false, rank);
    const Arrays from(mine, rank, 0);
    const Arrays to(mine, 1'000, rank, 0);
    const TestMemory one(*driver, Memory::device, 4);
    ASSERT_NE(node.begin(comm, one.data()), -1);
    const heddle_sparse good = from.in(mine);
    const auto refused = [&](const heddle_sparse& in, const char* why, const char* says,
                             heddle_op op = HEDDLE_SUM) {
      heddle_sparse out = to.out();
      ASSERT_EQ(heddle_sparse_allreduce(&in, &out, op, comm), HEDDLE_ERR_ARGUMENT) << why;
      EXPECT_NE(std::string(heddle_last_error()).find(says), std::string::npos) << heddle_last_error();
      compare(node, comm, rank, 0, mine);
    };
    for (const std::uint32_t index : {0U, 1'000U}) {  // not after the one before; not less than the dimension
      if (rank == 1) from.indices.put(&index, sizeof index, 499 * sizeof index);
      refused(good, "broken entries", rank == 1 ? "499" : "rank 1");
      from.put(mine);
    }
    heddle_sparse longer = good;  // in bytes, of which there are more than numbers, nothing is wrong with it
    if (rank == 1) longer.count = SIZE_MAX / 4 + 9;
    refused(longer, "no count", rank == 1 ? "count 4611686018427387912" : "rank 1");
    refused(good, "another operation", "min of int32", rank == 2 ? HEDDLE_MIN : HEDDLE_MAX);
    heddle_sparse shorter = good;
    shorter.dimension = rank == 2 ? 999 : 1'000;
    shorter.count = 400;
    refused(shorter, "another dimension", "dimension");
    refused(good, "an operation that there is not", rank == 1 ? "op 1 is none" : "rank 1 passed arguments",
            rank == 1 ? HEDDLE_PROD : HEDDLE_SUM);
  });
}

// What GPUs do not serve goes by images: host memory on one rank, arrays that are not aligned.
TEST(GpuNodeMerge, WhatTheyDoNotServe) {
  Node node(2);
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    Entries mine(1'000, 200, HEDDLE_INT32, false, rank);
    const Arrays from(mine, rank, 0);
    const Arrays to(mine, 1'000, rank, 0);
    const TestMemory one(*driver, Memory::device, 4);
    ASSERT_NE(node.begin(comm, one.data()), -1);
    const TestMemory moved(*driver, Memory::device, mine.values.size() + 1);
    moved.put(mine.values.data(), mine.values.size(), 1);
    const heddle_sparse good = from.in(mine);
    const heddle_sparse shifted = mine.vector(from.indices.data(), moved.as<char>() + 1);
    const Wanted wanted(mine, comm);
    const auto by_images = [&](const heddle_sparse& in) {
      heddle_sparse out = to.out();
      OK(heddle_sparse_allreduce(&in, &out, HEDDLE_SUM, comm));
      heddle_sparse_stats stats = {};
      OK(heddle_sparse_get_stats(comm, &stats));
      EXPECT_NE(std::string(stats.algorithm), "gpu");
      expect_same(wanted, out, mine);
    };
    by_images(rank == 0 ? mine.vector() : good);
    by_images(rank == 1 ? shifted : good);
    compare(node, comm, rank, 0, mine);
  });
}

// Whatever fails on one rank, all are told, and are served again later.
TEST(GpuNodeMerge, OneFails) {
  Node node(2);
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    const Entries mine(1'000, 200, HEDDLE_FLOAT32, false, rank);
    const Arrays from(mine, rank, 0);
    const Arrays to(mine, 400, rank, 0);
    const heddle_sparse in = from.in(mine);
    for (const char* name : {"cuLaunchKernel", "cuStreamSynchronize", "cuEventRecord"}) {
      ASSERT_NE(node.begin(comm, to.values.data(), 300), -1);  // later each time
      heddle_sparse out = to.out();
      OK(heddle_sparse_allreduce(&in, &out, HEDDLE_SUM, comm));
      node.counted("", [&] {
        if (rank == 0) driver->fail(name, CUDA_ERROR_LAUNCH_FAILED);
      });
      EXPECT_NE(heddle_sparse_allreduce(&in, &out, HEDDLE_SUM, comm), HEDDLE_OK) << name;
      const std::string why = heddle_last_error();
      EXPECT_TRUE(why.find("so says the double") != std::string::npos ||
                  why.find("could not do its part") != std::string::npos)
          << name << ": " << why;
    }
  });
}

// Then the host has to fetch what kernels tell it else.
TEST(GpuNodeMerge, WithoutPinnedMemory) {
  setenv("HEDDLE_PINNED_BYTES", "0", 1);
  Node node(2);
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    const TestMemory one(*driver, Memory::device, 4);
    ASSERT_NE(node.begin(comm, one.data()), -1);
    const Entries mine(5'000, 700, HEDDLE_FLOAT32, false, rank);
    compare(node, comm, rank, 0, mine);
    compare(node, comm, rank, 0, {5'000, 900, HEDDLE_FLOAT32, false, rank});
    const Arrays from(mine, rank, 0);
    const Arrays to(mine, 5'000, rank, 0);
    const heddle_sparse in = from.in(mine);
    heddle_sparse out = to.out();
    node.counted("", [&] {
      if (rank == 0) driver->fail("cuMemcpyDtoHAsync", CUDA_ERROR_LAUNCH_FAILED);
    });
    EXPECT_NE(heddle_sparse_allreduce(&in, &out, HEDDLE_SUM, comm), HEDDLE_OK);
  });
  unsetenv("HEDDLE_PINNED_BYTES");
}

// Memory that is missing on one rank, for whatever: images, and the GPUs again.
TEST(GpuNodeMerge, NoMemoryOnOneRank) {
  for (const int devices : {1, 2}) {
    Node node(3);
    on_ranks(3, [&](heddle_comm_t comm, int rank) {
      const int device = rank % devices;
      const TestMemory one(*driver, Memory::device, 4, device);
      ASSERT_NE(node.begin(comm, one.data()), -1);
      // Each time more is wanted than before.
      for (std::size_t i = 1; i <= 3; ++i) {
        const Entries mine(20'000, 4'000 * i, HEDDLE_FLOAT32, false, rank);
        const Wanted wanted(mine, comm);
        const Arrays from(mine, rank, device);
        const Arrays to(mine, wanted.count, rank, device);
        const heddle_sparse in = from.in(mine);
        heddle_sparse out = to.out();
        node.counted("", [&] {
          if (rank == 0) driver->fail("cuMemAlloc", CUDA_ERROR_OUT_OF_MEMORY);
        });
        OK(heddle_sparse_allreduce(&in, &out, HEDDLE_SUM, comm));
        expect_same(wanted, out, mine, device);
        heddle_sparse_stats stats = {};
        OK(heddle_sparse_get_stats(comm, &stats));
        EXPECT_NE(std::string(stats.algorithm), "gpu");
        node.counted("", [&] {
          if (rank == 0) driver->fail_no_more("cuMemAlloc");
        });
        compare(node, comm, rank, device, mine);
      }
    });
  }
}

}  // namespace
