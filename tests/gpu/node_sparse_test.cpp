// Allreduces of sparse vectors, and of the largest entries of dense ones, in GPU memory, by ranks that are threads of one process (node_test.cpp).
// What is right is heddle's own result for host memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "../api/ranks.hpp"
#include "cuda_memory.hpp"
#include "heddle/heddle_compress.h"
#include "heddle/heddle_sparse.h"
#include "node_ranks_of_threads.hpp"

namespace {

using heddle::test::driver;
using heddle::test::kind_of;
using heddle::test::Memory;
using heddle::test::Node;
using heddle::test::TestMemory;
using heddle::testing_ranks::on_ranks;
using Bytes = std::vector<std::uint8_t>;

std::size_t width_of(heddle_dtype type) {
  if (type == HEDDLE_FLOAT16 || type == HEDDLE_BFLOAT16) return 2;
  return type == HEDDLE_FLOAT32 || type == HEDDLE_INT32 ? 4 : 8;
}

// Calm numbers, none of which is 0.
template <typename T>
void append(Bytes& bytes, T value) {
  const std::size_t at = bytes.size();
  bytes.resize(at + sizeof value);
  std::memcpy(&bytes[at], &value, sizeof value);
}
void append(Bytes& bytes, heddle_dtype type, unsigned drawn) {
  const int number = static_cast<int>(drawn % 20'001) - 10'000;
  if (type == HEDDLE_FLOAT16) append(bytes, static_cast<std::uint16_t>(0x3400 | (drawn & 0x8BFF)));
  if (type == HEDDLE_BFLOAT16) append(bytes, static_cast<std::uint16_t>(0x3F00 | (drawn & 0x80FF)));
  if (type == HEDDLE_FLOAT32) append(bytes, (static_cast<float>(number) + 0.5F) / 3);
  if (type == HEDDLE_FLOAT64) append(bytes, (number + 0.5) / 3);
  if (type == HEDDLE_INT32) append(bytes, std::int32_t{number});
  if (type == HEDDLE_INT64) append(bytes, std::int64_t{number} << 33);
}

// Entries in the host's memory.
struct Entries {
  Entries(std::uint64_t dimension, std::size_t count, heddle_dtype value_type, bool wide, int rank)
      : type(value_type), is_wide(wide) {
    std::mt19937 random(static_cast<unsigned>(count + dimension) + 77U * static_cast<unsigned>(rank));
    std::vector<std::uint64_t> all(dimension);
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i] = i;
    std::vector<std::uint64_t> chosen;
    std::sample(all.begin(), all.end(), std::back_inserter(chosen), count, random);
    for (const std::uint64_t index : chosen) {
      if (wide) append(indices, index);
      if (!wide) append(indices, static_cast<std::uint32_t>(index));
      append(values, type, static_cast<unsigned>(random()));
    }
    number = chosen.size();
    size = dimension;
  }
  heddle_sparse vector(void* at_indices, void* at_values) const {
    heddle_sparse vector = {};
    vector.dimension = size;
    vector.count = number;
    vector.index_type = is_wide ? HEDDLE_INDEX64 : HEDDLE_INDEX32;
    vector.value_type = type;
    vector.indices = at_indices;
    vector.values = at_values;
    return vector;
  }
  heddle_sparse vector() { return vector(indices.data(), values.data()); }

  heddle_dtype type;
  bool is_wide;
  Bytes indices;
  Bytes values;
  std::size_t number = 0;
  std::uint64_t size = 0;
};

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

// ---- Sparse vectors

void compare_sum(Node& node, heddle_comm_t comm, int rank, int device, Entries mine) {
  const OnGpu there(mine, rank, device);
  Bytes wanted(mine.size * width_of(mine.type));
  heddle_sparse host = mine.vector();
  OK(heddle_sparse_allreduce_dense(&host, wanted.data(), HEDDLE_SUM, comm));
  heddle_sparse_stats by_host = {};
  OK(heddle_sparse_get_stats(comm, &by_host));
  heddle_sparse in = mine.vector(there.indices.data(), there.values.data());
  const int kernels = node.counted("cuLaunchKernel", [&] {
    OK(heddle_sparse_allreduce_dense(&in, there.dense.data(), HEDDLE_SUM, comm));
  });
  heddle_sparse_stats by_gpu = {};
  OK(heddle_sparse_get_stats(comm, &by_gpu));
  EXPECT_GE(kernels, by_host.entries > 0 ? node.ranks() : 0) << "by images";
  EXPECT_EQ(std::string(by_gpu.algorithm), "gpu");
  EXPECT_EQ(by_gpu.entries, by_host.entries);
  EXPECT_EQ(by_gpu.bytes_sent, mine.indices.size() + mine.values.size());
  ASSERT_EQ(there.result(wanted.size()), wanted) << "type " << mine.type << ", " << mine.number << " entries";
}

void sums(int ranks, int devices) {
  Node node(ranks);
  on_ranks(ranks, [&](heddle_comm_t comm, int rank) {
    const int device = rank % devices;
    const TestMemory one(*driver, Memory::device, 4, device);
    ASSERT_NE(node.begin(comm, one.data()), -1);
    const auto r = static_cast<std::size_t>(rank);
    for (const heddle_dtype type :
         {HEDDLE_FLOAT16, HEDDLE_BFLOAT16, HEDDLE_FLOAT32, HEDDLE_FLOAT64, HEDDLE_INT32, HEDDLE_INT64})
      compare_sum(node, comm, rank, device, {5'000, 300 * r, type, rank % 2 == 1, rank});
    // None at all; and more than the scratch takes at once, on one rank most.
    compare_sum(node, comm, rank, device, {1, 0, HEDDLE_FLOAT32, false, rank});
    compare_sum(node, comm, rank, device, {20'000, 4'500 + 4'200 * r, HEDDLE_FLOAT32, false, rank});
    compare_sum(node, comm, rank, device, {6'000, 6'000 - r, HEDDLE_FLOAT64, true, rank});
  });
}

TEST(GpuNodeSparse, SumsInOneContext) {
  for (int ranks = 2; ranks <= 3; ++ranks)
    sums(ranks, 1);
}

TEST(GpuNodeSparse, SumsOnTwoDevices) {
  sums(3, 2);
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

// One rank's mistake is everybody's, in the words that there are for host memory, and the next call is served again.
TEST(GpuNodeSparse, BrokenEntriesAndDisagreement) {
  Node node(3);
  on_ranks(3, [&](heddle_comm_t comm, int rank) {
    const Entries mine(1'000, 500, HEDDLE_INT32, false, rank);
    const OnGpu there(mine, rank, 0);
    ASSERT_NE(node.begin(comm, there.dense.data()), -1);
    const heddle_sparse good = mine.vector(there.indices.data(), there.values.data());
    const auto refused = [&](const heddle_sparse& in, const char* why) {
      ASSERT_EQ(heddle_sparse_allreduce_dense(&in, there.dense.data(), HEDDLE_SUM, comm), HEDDLE_ERR_ARGUMENT)
          << why;
      compare_sum(node, comm, rank, 0, mine);
    };
    for (const std::uint32_t index : {0U, 1'000U}) {  // not after the one before; not less than the dimension
      const std::size_t at = 499 * sizeof index;
      there.indices.put(&index, sizeof index, rank == 1 ? at : 0);
      if (rank != 1) there.indices.put(mine.indices.data(), sizeof index);
      refused(good, "broken entries");
      there.indices.put(mine.indices.data(), mine.indices.size());
    }
    heddle_sparse shorter = good;
    shorter.dimension = rank == 2 ? 999 : 1'000;
    shorter.count = 400;
    refused(shorter, "another dimension");
  });
}

// What GPUs do not serve goes by images: another operation, host memory on one rank, arrays that are not aligned.
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
    const auto compare = [&](const heddle_sparse& in, heddle_op op) {
      OK(heddle_sparse_allreduce_dense(&host, wanted.data(), op, comm));
      OK(heddle_sparse_allreduce_dense(&in, there.dense.data(), op, comm));
      EXPECT_EQ(there.result(wanted.size()), wanted);
    };
    compare(good, HEDDLE_MAX);
    compare(rank == 0 ? host : good, HEDDLE_SUM);
    compare(rank == 1 ? shifted : good, HEDDLE_SUM);
    compare_sum(node, comm, rank, 0, mine);
  });
}

// ---- The largest entries

std::vector<float> gradient(std::size_t n, int rank, int step) {
  std::mt19937 random(static_cast<unsigned>(n) + 77U * static_cast<unsigned>(rank) +
                      1000U * static_cast<unsigned>(step));
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values)
    value = random() % 4 == 0 ? 0 : normal(random);
  return values;
}

heddle_status in_place(float* at, std::size_t n, const char* method, heddle_residual_t residual,
                       heddle_comm_t comm) {
  return heddle_compressed_allreduce(static_cast<const float*>(HEDDLE_IN_PLACE), at, n, method, 5, residual,
                                     comm);
}

// A communicator's two sides, each with its residual: steps of the one are compared with those of the other.
class Steps {
 public:
  Steps(Node& node, heddle_comm_t comm, int rank, int device, std::size_t n)
      : node_(node),
        comm_(comm),
        rank_(rank),
        n_(n),
        in_(*driver, kind_of(rank, 0), n * sizeof(float), device),
        out_(*driver, kind_of(rank, 3), n * sizeof(float), device) {
    make(&by_host_);
    make(&by_gpu_);
  }
  Steps(const Steps&) = delete;
  Steps& operator=(const Steps&) = delete;
  ~Steps() {
    heddle_residual_destroy(by_host_);
    heddle_residual_destroy(by_gpu_);
  }

  void step(const char* method, std::vector<float> mine, bool keeps, bool in_place,
            std::optional<bool> by_kernels = true) {
    const TestMemory& from = in_place ? out_ : in_;
    from.put(mine.data(), n_ * sizeof(float));
    std::vector<float> wanted(n_);
    const int kernels = node_.counted("cuLaunchKernel", [&] {
      OK(heddle_compressed_allreduce(in_place ? static_cast<const float*>(HEDDLE_IN_PLACE) : in_.as<float>(),
                                     out_.as<float>(), n_, method, 5, keeps ? by_gpu_ : nullptr, comm_));
    });
    EXPECT_EQ(kernels > 0, by_kernels.value_or(kernels > 0)) << method;
    // The sampled selection is the exact one on GPUs.
    const bool is_sampled = std::string(method) == "topk-sampled:0.02";
    OK(heddle_compressed_allreduce(mine.data(), wanted.data(), n_, is_sampled ? "topk:0.02" : method, 5,
                                   keeps ? by_host_ : nullptr, comm_));
    std::vector<float> got(n_);
    out_.get(got.data(), n_ * sizeof(float));
    ASSERT_EQ(std::memcmp(got.data(), wanted.data(), n_ * sizeof(float)), 0) << method << " of " << n_;
  }
  // The values' addresses are asked for once.
  void compare_residuals() {
    std::size_t count = n_;
    if (host_values_ == nullptr) {
      OK(heddle_residual_values(by_host_, &host_values_, &count));
      OK(heddle_residual_values(by_gpu_, &gpu_values_, &count));
    }
    ASSERT_EQ(count, n_);
    ASSERT_EQ(std::memcmp(host_values_, gpu_values_, n_ * sizeof(float)), 0)
        << "what rank " << rank_ << " left out";
  }
  heddle_residual_t by_host() const { return by_host_; }
  heddle_residual_t by_gpu() const { return by_gpu_; }

 private:
  void make(heddle_residual_t* residual) const { OK(heddle_residual_create(n_, residual)); }

  Node& node_;
  const heddle_comm_t comm_;
  const int rank_;
  const std::size_t n_;
  const TestMemory in_;
  const TestMemory out_;
  heddle_residual_t by_host_ = nullptr;
  heddle_residual_t by_gpu_ = nullptr;
  float* host_values_ = nullptr;
  float* gpu_values_ = nullptr;
};

void largest(int ranks, int devices) {
  Node node(ranks);
  on_ranks(ranks, [&](heddle_comm_t comm, int rank) {
    const TestMemory one(*driver, Memory::device, 4, rank % devices);
    ASSERT_NE(node.begin(comm, one.data()), -1);
    for (const std::size_t n : {1, 1'000, 30'000}) {
      Steps steps(node, comm, rank, rank % devices, n);
      for (int step = 0; step < 4; ++step)
        steps.step(step % 2 == 0 ? "topk:0.1" : "topk:1", gradient(n, rank, step), false, step > 1);
      for (int step = 0; step < 3; ++step)
        steps.step("topk:0.05", gradient(n, rank, step), true, step == 1);
      steps.compare_residuals();
      // From here on the caller has the values' address, and sees them after every call.
      for (int step = 3; step < 5; ++step) {
        steps.step("topk:0.05", gradient(n, rank, step), true, false);
        steps.compare_residuals();
      }
      steps.step("topk-sampled:0.02", gradient(n, rank, 5), true, false);
      steps.compare_residuals();
    }
  });
}

TEST(GpuNodeSparse, LargestInOneContext) {
  largest(2, 1);
  largest(3, 1);
}

TEST(GpuNodeSparse, LargestOnTwoDevices) {
  largest(3, 2);
}

// Counts as sent, and is not left behind: more of it than is sent, and less.
TEST(GpuNodeSparse, LargestThatAreNotFinite) {
  Node node(2);
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    const TestMemory one(*driver, Memory::device, 4);
    ASSERT_NE(node.begin(comm, one.data()), -1);
    Steps steps(node, comm, rank, 0, 3'000);
    for (const std::size_t every : {100U, 7U}) {
      std::vector<float> mine = gradient(3'000, rank, 0);
      for (std::size_t i = static_cast<std::size_t>(rank); i < mine.size(); i += every)
        mine[i] = i % 2 == 0 ? std::numeric_limits<float>::infinity() : -std::numeric_limits<float>::max();
      steps.step("topk:0.05", mine, true, false);
      steps.step("topk:0.05", mine, true, false);
    }
    steps.compare_residuals();
  });
}

// Methods that the GPUs do not serve, and host memory on one rank, take the residual back; nothing is counted twice.
TEST(GpuNodeSparse, ResidualsGoBackAndForth) {
  Node node(2);
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    const TestMemory one(*driver, Memory::device, 4);
    ASSERT_NE(node.begin(comm, one.data()), -1);
    Steps steps(node, comm, rank, 0, 2'000);
    std::vector<float> mixed(2'000);
    for (int step = 0; step < 3; ++step) {
      steps.step("topk:0.05", gradient(2'000, rank, step), true, false);
      steps.step("fp16", gradient(2'000, rank, 10 + step), true, false, false);
      steps.step("topk:0.05", gradient(2'000, rank, 20 + step), true, false);
      // By images, since rank 0 passes host memory.
      std::vector<float> mine = gradient(2'000, rank, 30 + step);
      const TestMemory there(*driver, Memory::device, 2'000 * sizeof(float));
      there.put(mine.data(), 2'000 * sizeof(float));
      std::vector<float> wanted(2'000);
      float* const at = rank == 0 ? mine.data() : there.as<float>();
      OK(heddle_compressed_allreduce(mine.data(), wanted.data(), 2'000, "topk:0.05", 5, steps.by_host(),
                                     comm));
      OK(in_place(at, 2'000, "topk:0.05", steps.by_gpu(), comm));
      there.get(mixed.data(), 2'000 * sizeof(float));
      if (rank == 0) mixed = mine;
      ASSERT_EQ(mixed, wanted);
    }
    steps.compare_residuals();
    // What is not for GPUs at all does not end it.
    for (int step = 0; step < 10; ++step)
      steps.step("fp16", gradient(2'000, rank, step), false, false, false);
    steps.step("topk:0.05", gradient(2'000, rank, 1), true, false);
  });
}

TEST(GpuNodeSparse, LargestDisagreement) {
  Node node(3);
  on_ranks(3, [&](heddle_comm_t comm, int rank) {
    const TestMemory both(*driver, Memory::device, 4'000);
    ASSERT_NE(node.begin(comm, both.data()), -1);
    Steps steps(node, comm, rank, 0, 1'000);
    for (const char* other : {"topk:0.2", "fp16", "randomk:0.1"}) {
      steps.step("topk:0.1", gradient(1'000, rank, 0), true, false);
      ASSERT_EQ(in_place(both.as<float>(), 1'000, rank == 1 ? other : "topk:0.1", steps.by_gpu(), comm),
                HEDDLE_ERR_ARGUMENT);
    }
    ASSERT_EQ(in_place(both.as<float>(), rank == 1 ? 999 : 1'000, "topk:0.1", nullptr, comm),
              HEDDLE_ERR_ARGUMENT);
    steps.step("topk:0.1", gradient(1'000, rank, 1), true, false);
    steps.compare_residuals();
  });
}

// A residual outlives the communicator, and what that had of CUDA.
TEST(GpuNodeSparse, ResidualsOutliveTheirCommunicator) {
  heddle_residual_t left[2] = {nullptr, nullptr};
  Node node(2);
  const std::vector<float> ones(100, 1.0F);
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    const TestMemory both(*driver, Memory::device, 400);
    ASSERT_NE(node.begin(comm, both.data()), -1);
    both.put(ones.data(), 400);
    OK(heddle_residual_create(100, &left[rank]));
    OK(in_place(both.as<float>(), 100, "topk:0.1", left[rank], comm));
  });
  float* values = nullptr;
  std::size_t count = 0;
  OK(heddle_residual_values(left[0], &values, &count));
  EXPECT_EQ(values[0], 0.0F);
  EXPECT_EQ(values[99], 1.0F);
  for (heddle_residual_t one : left)
    OK(heddle_residual_destroy(one));
}

// Whatever fails on one rank, all are told, and are served again later.
TEST(GpuNodeSparse, OneFails) {
  Node node(2);
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    const TestMemory both(*driver, Memory::device, 4'000);
    TestMemory freed(*driver, Memory::device, 4'000);
    void* const nowhere = freed.lose();
    const char* const names[] = {"nothing",           "cuLaunchKernel",      "cuMemsetD8Async",
                                 "cuMemcpyDtoHAsync", "cuStreamSynchronize", "cuEventRecord"};
    for (int turn = 0; turn < 6; ++turn) {
      ASSERT_NE(node.begin(comm, both.data(), 300), -1);  // later each time
      heddle_residual_t residual = nullptr;
      OK(heddle_residual_create(1'000, &residual));
      // Now all memory is there that is wanted.
      OK(in_place(both.as<float>(), 1'000, "topk:0.1", residual, comm));
      node.counted("", [&] {
        if (rank == 0 && turn > 0) driver->fail(names[turn], CUDA_ERROR_LAUNCH_FAILED);
      });
      const bool is_freed = turn == 0 && rank == 1;
      const heddle_status status = in_place(is_freed ? static_cast<float*>(nowhere) : both.as<float>(), 1'000,
                                            "topk:0.1", residual, comm);
      const std::string why = heddle_last_error();
      EXPECT_NE(status, HEDDLE_OK) << names[turn];
      const char* const says = is_freed                    ? "freed"
                               : status == HEDDLE_ERR_PEER ? "could not do its part"
                                                           : "so says the double";
      EXPECT_NE(why.find(says), std::string::npos) << names[turn] << ": " << why;
      OK(heddle_residual_destroy(residual));
    }
  });
}

// Memory that is missing before anything has changed: images.
TEST(GpuNodeSparse, NoMemoryOnOneRank) {
  Node node(2);
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    const TestMemory one(*driver, Memory::device, 4);
    ASSERT_NE(node.begin(comm, one.data()), -1);
    Steps steps(node, comm, rank, 0, 1'000);
    // Each is one that the GPUs do not serve, and its double in host memory another one: few enough.
    for (int i = 0; i < 3; ++i) {
      node.counted("", [&] {
        if (rank == 0) driver->fail("cuMemAlloc", CUDA_ERROR_OUT_OF_MEMORY);
      });
      steps.step("topk:0.1", gradient(1'000, rank, i), true, false, std::nullopt);
    }
    node.counted("", [&] {
      if (rank == 0) driver->find<void (*)(const char*, int, int)>("fake_cuda_fail")("cuMemAlloc", 0, 0);
    });
    steps.step("topk:0.1", gradient(1'000, rank, 5), true, false);
    steps.compare_residuals();
  });
}

}  // namespace
