// Allreduces through codecs of vectors in GPU memory (node_codes_test.cpp): those that the GPUs do not serve,
// between others that they do, and those that fail.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "../api/ranks.hpp"
#include "cuda_memory.hpp"
#include "heddle/heddle_compress.h"
#include "node_codes.hpp"
#include "node_ranks_of_threads.hpp"

namespace {

using heddle::test::algorithm;
using heddle::test::CodedSteps;
using heddle::test::driver;
using heddle::test::gradient;
using heddle::test::gradients;
using heddle::test::Memory;
using heddle::test::Node;
using heddle::test::same_bits;
using heddle::test::TestMemory;
using heddle::test::Vectors;
using heddle::testing_ranks::on_ranks;

// What the host has left out since becomes the reference's: each rank knows its own, and tells the other.
void learn(CodedSteps& steps, int rank, const float* mine, std::size_t n, heddle_comm_t comm) {
  steps.reference().left_out(rank).assign(mine, mine + n);
  for (int r = 0; r < 2; ++r)
    OK(heddle_bcast(steps.reference().left_out(r).data(), n * sizeof(float), r, comm));
}

// Methods that the GPUs do not serve take the residual back to the host, and calls of other kinds use what
// this one left.
TEST(GpuNodeCodesBeside, ResidualsGoBackAndForth) {
  constexpr std::size_t kCount = 2'000;
  Node node(2);
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    const TestMemory one(*driver, Memory::device, 4);
    ASSERT_NE(node.begin(comm, one.data()), -1);
    CodedSteps steps(node, comm, rank, 0, kCount);
    heddle_residual_t by_host = nullptr;
    OK(heddle_residual_create(kCount, &by_host));
    float* host_values = nullptr;
    std::size_t count = 0;
    OK(heddle_residual_values(by_host, &host_values, &count));
    std::uint64_t call = 0;
    for (int turn = 0; turn < 3; ++turn) {
      steps.step("qsgd:8", 5, &call, gradients(2, kCount, turn), true, false);
      for (const char* method : {"topk:0.1", "randomk:1"}) {
        // The same by the host alone, from where the GPUs have left it.
        const std::vector<float> mine = gradient(kCount, rank, 10 + turn);
        std::vector<float> wanted(kCount);
        std::memcpy(host_values, steps.reference().left_out(rank).data(), kCount * sizeof(float));
        OK(heddle_compressed_allreduce(mine.data(), wanted.data(), kCount, method, 5, by_host, comm));
        steps.put(gradients(2, kCount, 10 + turn), true);
        OK(steps.give(method, 5, steps.residual(), true));
        call += 2;
        ASSERT_TRUE(same_bits(steps.result(), wanted)) << method;
        learn(steps, rank, host_values, kCount, comm);
      }
      steps.step("onebit", 5, &call, gradients(2, kCount, 20 + turn), true, true);
    }
    steps.compare_residual();
    // What is not for GPUs at all does not end it.
    for (int i = 0; i < 10; ++i, ++call)
      OK(steps.give("randomk:0.1", 5, nullptr, true));
    steps.step("qsgd:4", 5, &call, gradients(2, kCount, 1), true, false);
    OK(heddle_residual_destroy(by_host));
  });
}

// By images: the host's sum, with which nothing is lost either that was left out before, or is now.
void by_images(Node& node, CodedSteps& steps, int rank, heddle_comm_t comm, const Vectors& all,
               const std::function<heddle_status()>& give,
               const std::function<std::vector<float>()>& result) {
  const std::size_t n = all[0].size();
  std::vector<double> exact(n);
  for (int r = 0; r < node.ranks(); ++r)
    for (std::size_t i = 0; i < n; ++i)
      exact[i] += double{all[static_cast<std::size_t>(r)][i]} + double{steps.reference().left_out(r)[i]};
  OK(give());
  EXPECT_NE(algorithm(comm), "gpu");
  const std::vector<float> got = result();
  learn(steps, rank, steps.left_out().data(), n, comm);
  double kept = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double now = double{steps.reference().left_out(0)[i]} + double{steps.reference().left_out(1)[i]};
    kept += std::fabs(now);
    ASSERT_NEAR(double{got[i]} + now, exact[i], 1e-4);
  }
  EXPECT_GT(kept, 0);
}

TEST(GpuNodeCodesBeside, WhatTheyDoNotServe) {
  constexpr std::size_t kCount = 70'001;
  Node node(2);
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    const TestMemory one(*driver, Memory::device, 4, rank);
    ASSERT_NE(node.begin(comm, one.data()), -1);
    CodedSteps steps(node, comm, rank, rank, kCount);
    std::uint64_t call = 0;
    const Vectors all = gradients(2, kCount, 3);
    const std::vector<float>& mine = all[static_cast<std::size_t>(rank)];
    steps.step("qsgd:8", 5, &call, all, true, false);
    // Codes of one bucket that are longer than half of the scratch.
    by_images(
        node, steps, rank, comm, all,
        [&] {
          steps.put(all, false);
          return steps.give("qsgd:8:65536", 5, steps.residual(), false);
        },
        [&] { return steps.result(); });
    // Memory of the host, on one rank; values that are not aligned.
    std::vector<float> here = mine;
    const TestMemory there(*driver, Memory::device, (kCount + 1) * sizeof(float), rank);
    for (const std::size_t shift : {0U, 2U}) {
      const bool on_host = shift == 0 && rank == 0;
      float* const at = on_host ? here.data() : reinterpret_cast<float*>(there.as<char>() + shift);
      by_images(
          node, steps, rank, comm, all,
          [&] {
            if (!on_host) there.put(mine.data(), kCount * sizeof(float), shift);
            return heddle_compressed_allreduce(static_cast<const float*>(HEDDLE_IN_PLACE), at, kCount,
                                               "qsgd:8", 5, steps.residual(), comm);
          },
          [&] {
            std::vector<float> got(kCount);
            if (!on_host) there.get(got.data(), kCount * sizeof(float), shift);
            return on_host ? here : got;
          });
    }
    // Nothing at all.
    OK(steps.give("qsgd:8", 5, nullptr, true, 0));
    call += 4;
    ASSERT_NE(node.begin(comm, one.data()), -1);  // host memory so often has ended it
    steps.step("qsgd:8", 5, &call, all, true, false);
    steps.compare_residual();
  });
}

TEST(GpuNodeCodesBeside, Disagreement) {
  Node node(3);
  on_ranks(3, [&](heddle_comm_t comm, int rank) {
    const TestMemory one(*driver, Memory::device, 4);
    ASSERT_NE(node.begin(comm, one.data()), -1);
    CodedSteps steps(node, comm, rank, 0, 1'000);
    std::uint64_t call = 0;
    const auto refused = [&](const char* method, std::uint64_t seed, std::size_t count) {
      steps.step("qsgd:8", 5, &call, gradients(3, 1'000, 0), true, false);
      const bool is_other = rank == 1;
      ASSERT_EQ(
          steps.give(is_other ? method : "qsgd:8", is_other ? seed : 5,
                     is_other && count != 1'000 ? nullptr : steps.residual(), true, is_other ? count : 1'000),
          HEDDLE_ERR_ARGUMENT);
      EXPECT_NE(std::string(heddle_last_error()).find("another compression, count or seed"),
                std::string::npos)
          << heddle_last_error();
    };
    refused("qsgd:4", 5, 1'000);
    refused("qsgd:8:512", 5, 1'000);
    refused("topk:0.1", 5, 1'000);
    refused("fp16", 5, 1'000);
    refused("qsgd:8", 6, 1'000);
    refused("qsgd:8", 5, 999);
    steps.step("qsgd:8", 5, &call, gradients(3, 1'000, 1), true, false);
    steps.compare_residual();
  });
}

// Whatever fails, in whichever step and on whichever rank, all are told, the residual is what it was or from
// its front on what coding left out, and later calls are served again. There are more pieces than one where
// the ranks do not share a context. False: so many calls of `name` were not made.
bool fails(int devices, const char* name, int after) {
  constexpr std::size_t kCount = 70'001;
  Node node(2);
  int failed = 0;
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    const TestMemory one(*driver, Memory::device, 4, rank % devices);
    CodedSteps steps(node, comm, rank, rank % devices, kCount);
    std::uint64_t call = 0;
    ASSERT_NE(node.begin(comm, one.data()), -1);
    // Then all memory is there that is wanted.
    steps.step("qsgd:8", 5, &call, gradients(2, kCount, 0), true, false);
    const std::vector<float> before = steps.reference().left_out(rank);
    static_cast<void>(steps.reference().step("qsgd:8", 5, call++, gradients(2, kCount, 1)));
    steps.put(gradients(2, kCount, 1), false);
    node.counted("", [&] {
      if (rank == 0) driver->fail_after(name, after, CUDA_ERROR_LAUNCH_FAILED);
    });
    heddle_status status = HEDDLE_OK;
    node.counted("", [&] { status = steps.give("qsgd:8", 5, steps.residual(), false); });
    const std::string why = heddle_last_error();
    driver->fail_no_more(name);
    // All or none.
    std::int32_t sum = status == HEDDLE_OK ? 0 : 1;
    OK(heddle_allreduce(HEDDLE_IN_PLACE, &sum, 1, HEDDLE_INT32, HEDDLE_SUM, comm));
    ASSERT_TRUE(sum == 0 || sum == 2) << why;
    if (rank == 0) failed = sum;
    if (sum == 0) return;
    const char* const says = status == HEDDLE_ERR_PEER ? "could not do its part" : "so says the double";
    EXPECT_NE(why.find(says), std::string::npos) << why;
    const std::vector<float> left_out = steps.left_out();
    // What is coded from the front on, and what was there before behind that.
    const std::vector<float>& coded = steps.reference().left_out(rank);
    const auto end = std::mismatch(left_out.begin(), left_out.end(), coded.begin()).first;
    const auto at = before.begin() + (end - left_out.begin());
    ASSERT_TRUE(std::equal(end, left_out.end(), at)) << "from value " << end - left_out.begin() << " on";
    learn(steps, rank, left_out.data(), kCount, comm);
    ASSERT_NE(node.begin(comm, one.data()), -1);
    steps.step("qsgd:8", 5, &call, gradients(2, kCount, 2), true, false);
    steps.compare_residual();
  });
  return failed != 0;
}

void all_fail(int devices) {
  for (const char* name : {"cuLaunchKernel", "cuStreamSynchronize", "cuMemcpyDtoHAsync", "cuEventRecord"}) {
    int after = 0;
    for (; fails(devices, name, after) && !::testing::Test::HasFatalFailure();)
      ++after;
    EXPECT_GT(after, 1) << name;
  }
}

TEST(GpuNodeCodesBeside, OneFailsInOneContext) {
  all_fail(1);
}

TEST(GpuNodeCodesBeside, OneFailsOnTwoDevices) {
  all_fail(2);
}

// Memory that is missing before anything has changed: images. Of each rank's that is for the kernels' words,
// for codes and for the residual.
TEST(GpuNodeCodesBeside, NoMemoryOnOneRank) {
  constexpr std::size_t kCount = 1'000;
  for (int after = 0; after < 6; ++after) {
    Node node(2);
    on_ranks(2, [&](heddle_comm_t comm, int rank) {
      const TestMemory one(*driver, Memory::device, 4);
      CodedSteps steps(node, comm, rank, 0, kCount);
      ASSERT_NE(node.begin(comm, one.data()), -1);
      const Vectors all = gradients(2, kCount, 0);
      node.counted("", [&] {
        if (rank == 0) driver->fail_after("cuMemAlloc", after, CUDA_ERROR_OUT_OF_MEMORY);
      });
      by_images(
          node, steps, rank, comm, all,
          [&] {
            steps.put(all, false);
            return steps.give("qsgd:8", 5, steps.residual(), false);
          },
          [&] { return steps.result(); });
      std::uint64_t call = 1;
      steps.step("qsgd:8", 5, &call, all, true, false);
      steps.compare_residual();
    });
  }
}

}  // namespace
