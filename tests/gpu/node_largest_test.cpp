// Allreduces of the largest entries of dense vectors in GPU memory, by ranks that are threads of one process
// (node_test.cpp). What is right is heddle's own result for host memory.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "../api/ranks.hpp"
#include "cuda_memory.hpp"
#include "heddle/heddle_compress.h"
#include "node_ranks_of_threads.hpp"

namespace {

using heddle::test::driver;
using heddle::test::gradient;
using heddle::test::kind_of;
using heddle::test::Memory;
using heddle::test::Node;
using heddle::test::TestMemory;
using heddle::testing_ranks::on_ranks;

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

TEST(GpuNodeLargest, InOneContext) {
  largest(2, 1);
  largest(3, 1);
}

TEST(GpuNodeLargest, OnTwoDevices) {
  largest(3, 2);
}

// Counts as sent, and is not left behind: more of it than is sent, and less.
TEST(GpuNodeLargest, ThatAreNotFinite) {
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

// Methods that the GPUs do not serve, and host memory on one rank, take the residual back; nothing is counted
// twice.
TEST(GpuNodeLargest, ResidualsGoBackAndForth) {
  Node node(2);
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    const TestMemory one(*driver, Memory::device, 4);
    ASSERT_NE(node.begin(comm, one.data()), -1);
    Steps steps(node, comm, rank, 0, 2'000);
    std::vector<float> mixed(2'000);
    for (int step = 0; step < 3; ++step) {
      steps.step("topk:0.05", gradient(2'000, rank, step), true, false);
      steps.step("randomk:1", gradient(2'000, rank, 10 + step), true, false, false);
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
      steps.step("randomk:1", gradient(2'000, rank, step), false, false, false);
    steps.step("topk:0.05", gradient(2'000, rank, 1), true, false);
  });
}

TEST(GpuNodeLargest, Disagreement) {
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
    // What no call takes, on one rank.
    for (const char* right : {"topk:0.1", "fp16", "qsgd:8", "randomk:0.1"}) {
      ASSERT_EQ(in_place(both.as<float>(), 1'000, rank == 1 ? "zip" : right, nullptr, comm),
                HEDDLE_ERR_ARGUMENT)
          << heddle_last_error();
      EXPECT_EQ(std::string(heddle_last_error()).find(rank == 1 ? "\"zip\" is not" : "rank 1 passed"), 0U)
          << heddle_last_error();
    }
    steps.step("topk:0.1", gradient(1'000, rank, 1), true, false);
    steps.compare_residuals();
  });
}

// A residual outlives the communicator, and what that had of CUDA.
TEST(GpuNodeLargest, ResidualsOutliveTheirCommunicator) {
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
TEST(GpuNodeLargest, OneFails) {
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
TEST(GpuNodeLargest, NoMemoryOnOneRank) {
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
      if (rank == 0) driver->fail_no_more("cuMemAlloc");
    });
    steps.step("topk:0.1", gradient(1'000, rank, 5), true, false);
    steps.compare_residuals();
  });
}

}  // namespace
