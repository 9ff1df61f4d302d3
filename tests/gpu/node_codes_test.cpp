// Allreduces through codecs of vectors in GPU memory, by ranks that are threads of one process
// (node_test.cpp). What is right is made of the host's codecs: the sum, in the order of ranks, of what
// everybody's codes stand for, and what these leave out.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
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
using heddle::test::gradients;
using heddle::test::Memory;
using heddle::test::Node;
using heddle::test::same_bits;
using heddle::test::TestMemory;
using heddle::test::Vectors;
using heddle::testing_ranks::on_ranks;

// The first six with a residual as well.
constexpr const char* kMethods[] = {"qsgd:8", "fp16",   "qsgd:4",   "bf16",         "onebit:100",
                                    "onebit", "qsgd:2", "terngrad", "terngrad:100", "qsgd:8:7"};

void sums(int ranks, int devices) {
  Node node(ranks);
  on_ranks(ranks, [&](heddle_comm_t comm, int rank) {
    const TestMemory one(*driver, Memory::device, 4, rank % devices);
    ASSERT_NE(node.begin(comm, one.data()), -1);
    std::uint64_t call = 0;
    for (const std::size_t n : {1, 5, 1'000, 100'003}) {
      CodedSteps steps(node, comm, rank, rank % devices, n, n % 2);
      int turn = 0;
      for (const char* method : kMethods) {
        steps.step(method, 5, &call, gradients(ranks, n, turn), false, turn % 2 == 1);
        ++turn;
      }
      for (int step = 0; step < 6; ++step)
        steps.step(kMethods[step], 6 + static_cast<unsigned>(step), &call, gradients(ranks, n, step), true,
                   step == 1);
      steps.compare_residual();
      for (int step = 0; step < 2; ++step) {
        steps.step("qsgd:8", 7, &call, gradients(ranks, n, 6 + step), true, false);
        steps.compare_residual();
      }
    }
  });
}

TEST(GpuNodeCodes, InOneContext) {
  sums(2, 1);
  sums(3, 1);
  sums(4, 1);
}

TEST(GpuNodeCodes, OnTwoDevices) {
  sums(2, 2);
  sums(3, 2);
}

// Such calls count among those after which the GPUs serve all.
TEST(GpuNodeCodes, BeginByThemselves) {
  Node node(2);
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    CodedSteps steps(node, comm, rank, 0, 1'000);
    std::uint64_t call = 0;
    for (bool served = false; !served && call < 20; ++call) {
      steps.put(gradients(2, 1'000, 0), true);
      OK(steps.give("qsgd:8", 5, nullptr, true));
      served = algorithm(comm) == "gpu";
    }
    EXPECT_GT(call, 8U);
    steps.step("qsgd:8", 5, &call, gradients(2, 1'000, 1), false, true);
  });
}

// What is to be summed is written on the default stream, by work that nobody has waited for.
void after_other_work(int devices) {
  constexpr std::size_t kCount = 1'000;
  Node node(2);
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    const TestMemory both(*driver, Memory::device, kCount * sizeof(float), rank % devices);
    ASSERT_NE(node.begin(comm, both.data()), -1);
    heddle::test::Reference reference(2, kCount);
    for (std::uint64_t call = 0; call < 3; ++call) {
      const Vectors all = gradients(2, kCount, static_cast<int>(call));
      const std::vector<float> wanted = reference.step("qsgd:8", 5, call, all);
      driver->find<void (*)(void*, const void*, std::size_t)>("fake_cuda_write_later")(
          both.data(), all[static_cast<std::size_t>(rank)].data(), kCount * sizeof(float));
      OK(heddle_compressed_allreduce(static_cast<const float*>(HEDDLE_IN_PLACE), both.as<float>(), kCount,
                                     "qsgd:8", 5, nullptr, comm));
      std::vector<float> got(kCount);
      both.get(got.data(), kCount * sizeof(float));
      EXPECT_TRUE(same_bits(got, wanted));
      reference = heddle::test::Reference(2, kCount);
    }
  });
}

TEST(GpuNodeCodes, AfterOtherWork) {
  after_other_work(1);
  after_other_work(2);
}

// The bound that is told holds, of what vectors have lost all together nothing is gone, and what travelled is
// told.
TEST(GpuNodeCodes, NothingIsLostButRounding) {
  constexpr std::size_t kCount = 3'000;
  Node node(3);
  on_ranks(3, [&](heddle_comm_t comm, int rank) {
    const TestMemory one(*driver, Memory::device, 4);
    ASSERT_NE(node.begin(comm, one.data()), -1);
    CodedSteps steps(node, comm, rank, 0, kCount);
    std::uint64_t call = 0;
    const Vectors all = gradients(3, kCount, 0);
    steps.step("qsgd:4", 1, &call, all, true, false);
    heddle_sparse_stats stats = {};
    OK(heddle_sparse_get_stats(comm, &stats));
    EXPECT_EQ(stats.bytes_sent, 3 * 4 + kCount / 2);
    float largest = 0;
    for (const std::vector<float>& vector : all)
      for (const float value : vector)
        largest = std::max(largest, std::fabs(value));
    double bound = 0;
    OK(heddle_compression_error_bound("qsgd:4", 3, largest, &bound));
    const std::vector<float> got = steps.result();
    double most = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      const double exact = double{all[0][i]} + double{all[1][i]} + double{all[2][i]};
      most = std::max(most, std::fabs(double{got[i]} - exact));
      double kept = 0;
      for (int r = 0; r < 3; ++r)
        kept += double{steps.reference().left_out(r)[i]};
      ASSERT_NEAR(double{got[i]} + kept, exact, 1e-5 * double{largest});
    }
    EXPECT_LT(most, bound);
    EXPECT_GT(most, 0);
    steps.compare_residual();
  });
}

// A value that is none makes its bucket NaN for all, and leaves nothing behind.
TEST(GpuNodeCodes, ThatAreNotFinite) {
  Node node(2);
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    const TestMemory one(*driver, Memory::device, 4);
    ASSERT_NE(node.begin(comm, one.data()), -1);
    CodedSteps steps(node, comm, rank, 0, 3'000);
    std::uint64_t call = 0;
    for (const char* method : {"qsgd:8", "qsgd:4:64", "terngrad:7", "onebit:33"}) {
      Vectors all = gradients(2, 3'000, 0);
      all[0][10] = std::numeric_limits<float>::infinity();
      all[1][1'500] = std::numeric_limits<float>::quiet_NaN();
      all[0][2'900] = all[1][2'900] = std::numeric_limits<float>::max();
      const bool keeps = std::string(method) != "terngrad:7";
      steps.step(method, 5, &call, all, keeps, false);
      EXPECT_TRUE(std::isnan(steps.result()[10]));
      EXPECT_TRUE(std::isnan(steps.result()[1'500]));
      EXPECT_EQ(std::isinf(steps.result()[2'900]), std::string(method) != "onebit:33");
      EXPECT_TRUE(std::isfinite(steps.result()[700]) || std::string(method) == "qsgd:8");
      steps.step(method, 5, &call, gradients(2, 3'000, 1), keeps, true);
    }
    steps.compare_residual();
  });
}

// Those of 16 bits keep what is not finite in its place, and what runs over in them; values beside it are as
// they would be, and nothing is left of it.
TEST(GpuNodeCodes, HalvesThatAreNotFinite) {
  Node node(2);
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    const TestMemory one(*driver, Memory::device, 4);
    ASSERT_NE(node.begin(comm, one.data()), -1);
    CodedSteps steps(node, comm, rank, 0, 3'000);
    std::uint64_t call = 0;
    for (const char* method : {"fp16", "bf16"}) {
      Vectors all = gradients(2, 3'000, 0);
      all[0][10] = std::numeric_limits<float>::infinity();
      all[1][11] = std::numeric_limits<float>::quiet_NaN();
      all[0][12] = 65'520;  // the least that a half has no room for
      all[0][13] = std::numeric_limits<float>::max();
      steps.step(method, 5, &call, all, true, false);
      const bool is_half = std::string(method) == "fp16";
      EXPECT_TRUE(std::isinf(steps.result()[10]));
      EXPECT_TRUE(std::isnan(steps.result()[11]));
      EXPECT_EQ(std::isinf(steps.result()[12]), is_half);
      EXPECT_TRUE(std::isinf(steps.result()[13]));
      EXPECT_TRUE(std::isfinite(steps.result()[14]));
      steps.compare_residual();
      if (rank == 0) {
        EXPECT_EQ(steps.left_out()[10], 0);
        EXPECT_EQ(steps.left_out()[13], 0);
      }
      steps.step(method, 5, &call, gradients(2, 3'000, 1), true, true);
    }
    heddle_sparse_stats stats = {};
    OK(heddle_sparse_get_stats(comm, &stats));
    EXPECT_EQ(stats.bytes_sent, 2 * 3'000U);
  });
}

// Another seed, and the next call, are drawn for anew; the same calls on another communicator draw the same.
TEST(GpuNodeCodes, SeedsAndCalls) {
  constexpr std::size_t kCount = 2'000;
  std::vector<std::vector<float>> first;
  for (int round = 0; round < 2; ++round) {
    Node node(2);
    on_ranks(2, [&](heddle_comm_t comm, int rank) {
      const TestMemory one(*driver, Memory::device, 4);
      ASSERT_NE(node.begin(comm, one.data()), -1);
      CodedSteps steps(node, comm, rank, 0, kCount);
      std::vector<std::vector<float>> all;
      for (const std::uint64_t seed : {1U, 1U, 2U}) {
        steps.put(gradients(2, kCount, 0), false);
        OK(steps.give("terngrad", seed, nullptr, false));
        all.push_back(steps.result());
      }
      EXPECT_NE(all[0], all[1]);
      EXPECT_NE(all[1], all[2]);
      EXPECT_NE(all[0], all[2]);
      if (rank == 0 && round == 0) first = all;
      if (round == 1) {
        EXPECT_EQ(all, first);
      }
    });
  }
}

}  // namespace
