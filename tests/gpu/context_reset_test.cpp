// A device's primary context that is reset (cudaDeviceReset) and made anew, under the same handle, while
// heddle has streams, events, scratch and residuals in it: ranks that are threads of one process, on the
// double of CUDA's driver. It ends the process where something is used that went with the context.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "../api/ranks.hpp"
#include "cuda_memory.hpp"
#include "heddle/heddle_compress.h"
#include "heddle/heddle_cuda.h"
#include "node_ranks_of_threads.hpp"

namespace heddle::test {
namespace {

using heddle::testing_ranks::on_ranks;

constexpr int kDevice = 1;
constexpr std::size_t kCount = 5000;

// By one rank, while the others wait; nothing of the test's is in it then.
void reset_context(Node& node, int rank) {
  node.counted("", [&] {
    if (rank != 0) return;
    driver->set_current(nullptr);
    driver->call<PFN_cuDevicePrimaryCtxReset_v11000>("cuDevicePrimaryCtxReset_v2", CUdevice{kDevice});
    (void)driver->primary(kDevice);
  });
}

heddle_status sum_blocking(heddle_comm_t comm, const TestMemory& out) {
  return heddle_allreduce(HEDDLE_IN_PLACE, out.data(), kCount, HEDDLE_INT32, HEDDLE_SUM, comm);
}
heddle_status sum_on_stream(heddle_comm_t comm, const TestMemory& out) {
  return heddle_allreduce_on_stream(HEDDLE_IN_PLACE, out.data(), kCount, HEDDLE_INT32, HEDDLE_SUM, comm,
                                    nullptr);
}
using Sum = heddle_status (*)(heddle_comm_t comm, const TestMemory& out);

// Calls until they have gone by the GPUs for a while. Of those after a reset the first may fail; all others
// are right.
void sums_after_reset(Node& node, heddle_comm_t comm, int rank, const TestMemory& buffer, Sum sum) {
  const int ranks = node.ranks();
  int by_gpus = 0;
  for (int call = 0; call < 40 && by_gpus < 3; ++call) {
    const std::vector<std::int32_t> mine(kCount, rank + 1);
    buffer.put(mine.data(), kCount * 4);
    heddle_status status = HEDDLE_OK;
    by_gpus += node.counted("cuLaunchKernel", [&] { status = sum(comm, buffer); }) > 0 ? 1 : 0;
    if (status != HEDDLE_OK) {
      EXPECT_EQ(call, 0) << heddle_last_error();
      const std::string said = heddle_last_error();
      EXPECT_TRUE(said.find("reset") != std::string::npos || said.find("says why there") != std::string::npos)
          << said;
      continue;
    }
    std::vector<std::int32_t> got(kCount);
    buffer.get(got.data(), kCount * 4);
    ASSERT_EQ(got, std::vector<std::int32_t>(kCount, ranks * (ranks + 1) / 2)) << call;
  }
  EXPECT_EQ(by_gpus, 3) << "by the host";
}

void sums_over_resets(int ranks, int devices, Sum sum) {
  Node node(ranks);
  const int loaded_late = calls("a load at a launch");
  on_ranks(ranks, [&](heddle_comm_t comm, int rank) {
    const int device = rank % devices == 0 ? kDevice : 0;
    for (int round = 0; round < 3; ++round) {
      if (round > 0) reset_context(node, rank);
      TestMemory buffer(*driver, Memory::device, kCount * 4, device);
      sums_after_reset(node, comm, rank, buffer, sum);
      if (device == kDevice) buffer.forget();
    }
    // The communicators end with something in a context that is gone.
    reset_context(node, rank);
  });
  EXPECT_EQ(calls("a load at a launch"), loaded_late);
}

TEST(GpuContextReset, BlockingSums) {
  sums_over_resets(2, 1, sum_blocking);
  sums_over_resets(3, 2, sum_blocking);
}

TEST(GpuContextReset, SumsOnStreams) {
  sums_over_resets(2, 1, sum_on_stream);
  sums_over_resets(3, 2, sum_on_stream);
}

// It went with the context: no memory that lies at its address by now is taken for it, or freed.
TEST(GpuContextReset, Residuals) {
  constexpr std::size_t kBytes = kCount * sizeof(float);
  Node node(2);
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    heddle_residual_t residual = nullptr;
    OK(heddle_residual_create(kCount, &residual));
    {
      TestMemory buffer(*driver, Memory::device, kBytes, kDevice);
      ASSERT_NE(node.begin(comm, buffer.data()), -1);
      const std::vector<float> ones(kCount, 1.0F);
      buffer.put(ones.data(), kBytes);
      OK(heddle_compressed_allreduce(static_cast<const float*>(HEDDLE_IN_PLACE), buffer.as<float>(), kCount,
                                     "topk:0.1", 5, residual, comm));
      buffer.forget();
    }
    reset_context(node, rank);
    // What was as long is somebody else's now.
    std::vector<std::unique_ptr<TestMemory>> others;
    const std::vector<float> sevens(kCount, 7.0F);
    for (int i = 0; i < 20; ++i) {
      others.push_back(std::make_unique<TestMemory>(*driver, Memory::device, kBytes, kDevice));
      others.back()->put(sevens.data(), kBytes);
    }
    node.counted("", [] {});
    const TestMemory buffer(*driver, Memory::device, kBytes, kDevice);
    for (int call = 0; call < 3; ++call) {
      const heddle_status status =
          heddle_compressed_allreduce(static_cast<const float*>(HEDDLE_IN_PLACE), buffer.as<float>(), kCount,
                                      "topk:0.1", 5, residual, comm);
      EXPECT_NE(status, HEDDLE_OK) << "a residual that is gone was used";
    }
    float* values = nullptr;
    std::size_t count = 0;
    EXPECT_EQ(heddle_residual_values(residual, &values, &count), HEDDLE_ERR_SYSTEM);
    OK(heddle_residual_destroy(residual));
    std::vector<float> got(kCount);
    for (const auto& one : others) {
      one->get(got.data(), kBytes);
      ASSERT_EQ(got, sevens);
    }
  });
}

// It outlives the communicator, and all that kept the context: about which the driver may not be asked then.
TEST(GpuContextReset, AResidualThatComesLast) {
  constexpr std::size_t kBytes = kCount * sizeof(float);
  Node node(2);
  heddle_residual_t residuals[2] = {};
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    OK(heddle_residual_create(kCount, &residuals[rank]));
    TestMemory buffer(*driver, Memory::device, kBytes, kDevice);
    ASSERT_NE(node.begin(comm, buffer.data()), -1);
    const std::vector<float> ones(kCount, 1.0F);
    buffer.put(ones.data(), kBytes);
    OK(heddle_compressed_allreduce(static_cast<const float*>(HEDDLE_IN_PLACE), buffer.as<float>(), kCount,
                                   "topk:0.1", 5, residuals[rank], comm));
  });
  driver->set_current(nullptr);
  driver->find<void (*)(int)>("fake_cuda_release_primary")(kDevice);
  for (heddle_residual_t residual : residuals) {
    float* values = nullptr;
    std::size_t count = 0;
    EXPECT_EQ(heddle_residual_values(residual, &values, &count), HEDDLE_ERR_SYSTEM);
    OK(heddle_residual_destroy(residual));
  }
}

// After an illegal access whatever is asked of the context gives that error, to the end: calls say so, other
// communicators serve the host's memory, and communicators end.
TEST(GpuContextBroken, ToTheEnd) {
  const char* const names[] = {
      "cuStreamSynchronize", "cuStreamQuery",     "cuStreamCreate",       "cuStreamDestroy",
      "cuStreamWaitEvent",   "cuStreamGetCtx",    "cuStreamBatchMemOp",   "cuEventCreate",
      "cuEventRecord",       "cuEventDestroy",    "cuEventSynchronize",   "cuMemAlloc",
      "cuMemFree",           "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync",    "cuMemcpyDtoDAsync",
      "cuMemsetD8Async",     "cuMemHostRegister", "cuMemHostUnregister",  "cuLaunchKernel",
      "cuKernelGetFunction", "cuFuncLoad",        "cuCtxEnablePeerAccess"};
  const auto fail = driver->find<void (*)(const char*, int, int)>("fake_cuda_fail");
  for (const int devices : {1, 2}) {
    Node node(2);
    std::vector<std::unique_ptr<TestMemory>> buffers;
    for (int rank = 0; rank < 2; ++rank)
      buffers.push_back(std::make_unique<TestMemory>(*driver, Memory::device, kCount * 4, rank % devices));
    on_ranks(2, [&](heddle_comm_t comm, int rank) {
      const TestMemory& buffer = *buffers[static_cast<std::size_t>(rank)];
      ASSERT_NE(node.begin(comm, buffer.data()), -1);
      OK(sum_on_stream(comm, buffer));
      heddle_comm_t other = nullptr;
      OK(heddle_comm_split(comm, 0, rank, &other));
      node.counted("", [&] {
        for (const char* name : names)
          if (rank == 0) fail(name, CUDA_ERROR_ILLEGAL_ADDRESS, 1 << 30);
      });
      for (int call = 0; call < 3; ++call) {
        for (const Sum sum : {sum_blocking, sum_on_stream}) {
          EXPECT_NE(sum(comm, buffer), HEDDLE_OK);
          EXPECT_NE(std::string(heddle_last_error()), "");
        }
      }
      std::int32_t mine = rank + 1;
      OK(heddle_allreduce(HEDDLE_IN_PLACE, &mine, 1, HEDDLE_INT32, HEDDLE_SUM, other));
      EXPECT_EQ(mine, 3);
      OK(heddle_comm_destroy(other));
    });
    for (const char* name : names)
      fail(name, 0, 0);
  }
}

}  // namespace
}  // namespace heddle::test
