// The C API on buffers that lie on a GPU where something is wrong with them, or with the GPU.
#include <cstdint>
#include <string>
#include <vector>

#include "api_arrays.hpp"
#include "heddle/heddle_compress.h"

namespace heddle::test {
namespace {

using testing_ranks::on_ranks;

// Where device memory of so many bytes was, once all ranks have made theirs: CUDA's own driver gives an
// address to whoever comes next.
void* lost_address(heddle_comm_t comm, std::size_t bytes) {
  TestMemory freed(*driver, Memory::device, bytes);
  EXPECT_EQ(heddle_barrier(comm), HEDDLE_OK);
  void* const address = freed.lose();
  EXPECT_EQ(heddle_barrier(comm), HEDDLE_OK);
  return address;
}

// In each of these sums the others hear of it.
TEST(GpuApi, ASparseSumThatOneRankCannotReadEndsForAll) {
  on_ranks(3, [&](heddle_comm_t comm, int rank) {
    const Entries mine = entries_of(rank);
    const Array<std::uint32_t> indices(Memory::device, mine.indices);
    const Array<float> values(Memory::device, mine.values);
    const Array<float> dense(Memory::device, 5000);
    void* const address = lost_address(comm, 20'000);
    heddle_sparse good = sparse(300, indices.data(), values.data(), 0);
    heddle_sparse in = rank == 1 ? sparse(300, indices.data(), static_cast<float*>(address), 0) : good;
    std::vector<std::uint32_t> sum_indices(1000);
    std::vector<float> sum_values(1000);
    heddle_sparse out = sparse(0, sum_indices.data(), sum_values.data(), 1000);
    auto* const target = rank == 1 ? static_cast<float*>(address) : dense.data();
    EXPECT_EQ(heddle_sparse_allreduce(&in, &out, HEDDLE_SUM, comm), HEDDLE_ERR_ARGUMENT);
    EXPECT_EQ(heddle_sparse_allreduce_dense(&in, dense.data(), HEDDLE_SUM, comm), HEDDLE_ERR_ARGUMENT);
    EXPECT_EQ(heddle_sparse_allreduce_dense(&good, target, HEDDLE_SUM, comm), HEDDLE_ERR_ARGUMENT);
    EXPECT_EQ(heddle_sparse_allreduce_coded(&in, dense.data(), "fp16", 1, nullptr, comm),
              HEDDLE_ERR_ARGUMENT);
    EXPECT_EQ(heddle_sparse_allreduce_coded(&good, target, "fp16", 1, nullptr, comm), HEDDLE_ERR_ARGUMENT);
    const bool says_why = std::string(heddle_last_error()).find("freed") != std::string::npos;
    EXPECT_EQ(says_why, rank == 1) << heddle_last_error();
    OK(heddle_sparse_allreduce(&good, &out, HEDDLE_SUM, comm));
  });
}

TEST(GpuApi, BadBuffersAreArguments) {
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    const Array<float> good(Memory::device, values_of(rank, 100));
    auto* const address = static_cast<float*>(lost_address(comm, 100));
    ASSERT_EQ(heddle_allreduce(address, good.data(), 100, HEDDLE_FLOAT32, HEDDLE_SUM, comm),
              HEDDLE_ERR_ARGUMENT);
    EXPECT_NE(std::string(heddle_last_error()).find("freed"), std::string::npos) << heddle_last_error();
    ASSERT_EQ(heddle_bcast(address, 400, 0, comm), HEDDLE_ERR_ARGUMENT);
    heddle_request_t request = nullptr;
    ASSERT_EQ(heddle_iallreduce(good.data(), address, 100, HEDDLE_FLOAT32, HEDDLE_SUM, comm, &request),
              HEDDLE_ERR_ARGUMENT);
    ASSERT_EQ(request, nullptr);
    ASSERT_EQ(heddle_bcast(good.data(), 4000, rank, comm), HEDDLE_ERR_ARGUMENT) << "longer than its memory";
    const Array<float> one(Memory::device, 25);
    ASSERT_EQ(heddle_allgather(address, good.data(), 100, comm), HEDDLE_ERR_ARGUMENT);
    ASSERT_EQ(heddle_allgather(one.data(), address, 100, comm), HEDDLE_ERR_ARGUMENT);
    ASSERT_EQ(heddle_allgather(HEDDLE_IN_PLACE, good.data(), 204, comm), HEDDLE_ERR_ARGUMENT)
        << "no room for both ranks' bytes";
    ASSERT_EQ(heddle_iallgather(one.data(), address, 100, comm, &request), HEDDLE_ERR_ARGUMENT);
    ASSERT_EQ(request, nullptr);
    heddle_sparse lost = sparse(1, address, good.data(), 0);
    ASSERT_EQ(heddle_sparse_allreduce(&lost, &lost, HEDDLE_SUM, comm), HEDDLE_ERR_ARGUMENT);
    ASSERT_EQ(heddle_isparse_allreduce(&lost, &lost, HEDDLE_SUM, comm, &request), HEDDLE_ERR_ARGUMENT);
    ASSERT_EQ(request, nullptr);
    OK(heddle_allreduce(HEDDLE_IN_PLACE, good.data(), 100, HEDDLE_FLOAT32, HEDDLE_SUM, comm));
    ASSERT_EQ(good.get(), sum_of(2, 100));
  });
}

// A count that nobody set, of arrays on a GPU: it is refused before any memory is taken for it, of which
// there may be enough to read it, or none. The others hear of it.
TEST(GpuApi, ACountThatIsNoCountIsAnArgument) {
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    const Entries mine = entries_of(rank);
    for (const Memory memory : kMemories) {
      const Array<std::uint32_t> indices(memory, mine.indices);
      const Array<float> values(memory, mine.values);
      const Array<float> dense(memory, 5000);
      std::vector<std::uint32_t> sum_indices(1000);
      std::vector<float> sum_values(1000);
      heddle_sparse out = sparse(0, sum_indices.data(), sum_values.data(), 1000);
      for (const std::size_t count : {std::size_t{5001}, SIZE_MAX / 64, SIZE_MAX / 4 + 9}) {
        SCOPED_TRACE(std::string(memory_name(memory)) + ", count " + std::to_string(count));
        const heddle_sparse in = sparse(rank == 1 ? count : 300, indices.data(), values.data(), 0);
        const auto expect_refused = [&](heddle_status status) {
          EXPECT_EQ(status, HEDDLE_ERR_ARGUMENT);
          const bool names_it = std::string(heddle_last_error()).find("count " + std::to_string(count)) == 0;
          EXPECT_EQ(names_it, rank == 1) << heddle_last_error();
        };
        expect_refused(heddle_sparse_allreduce(&in, &out, HEDDLE_SUM, comm));
        expect_refused(heddle_sparse_allreduce_dense(&in, dense.data(), HEDDLE_MAX, comm));
        expect_refused(heddle_sparse_allreduce_coded(&in, dense.data(), "fp16", 1, nullptr, comm));
        heddle_request_t request = nullptr;
        OK(heddle_isparse_allreduce(&in, &out, HEDDLE_SUM, comm, &request));
        expect_refused(heddle_wait(&request));
      }
    }
  });
}

// Calls that begin with a copy of what is sent. A request that has started is waited for.
using Call = heddle_status (*)(const Array<float>& buffer, heddle_comm_t comm);
heddle_status bcast_again(const Array<float>& buffer, heddle_comm_t comm) {
  heddle_request_t request = nullptr;
  EXPECT_EQ(heddle_bcast_init(buffer.data(), 400, 1, comm, &request), HEDDLE_OK);
  heddle_status status = heddle_start(request);
  if (status == HEDDLE_OK) status = heddle_wait(&request);
  const std::string why = heddle_last_error();
  EXPECT_EQ(heddle_request_free(&request), HEDDLE_OK);
  return heddle_set_last_error(status, why.c_str());
}
constexpr Call kCallsWithACopy[] = {
    [](const Array<float>& buffer, heddle_comm_t comm) {
      return heddle_allreduce(HEDDLE_IN_PLACE, buffer.data(), 100, HEDDLE_FLOAT32, HEDDLE_SUM, comm);
    },
    [](const Array<float>& buffer, heddle_comm_t comm) { return heddle_bcast(buffer.data(), 400, 1, comm); },
    [](const Array<float>& buffer, heddle_comm_t comm) {
      return heddle_allgather(HEDDLE_IN_PLACE, buffer.data(), 132, comm);
    },
    [](const Array<float>& buffer, heddle_comm_t comm) {
      heddle_request_t request = nullptr;
      const heddle_status started =
          heddle_iallreduce(HEDDLE_IN_PLACE, buffer.data(), 100, HEDDLE_FLOAT32, HEDDLE_SUM, comm, &request);
      return started == HEDDLE_OK ? heddle_wait(&request) : started;
    },
    bcast_again,
    [](const Array<float>& buffer, heddle_comm_t comm) {
      std::vector<std::uint32_t> indices(100);
      for (std::uint32_t i = 0; i < 100; ++i)
        indices[i] = i;
      heddle_sparse vector = sparse(100, indices.data(), buffer.data(), 100);
      heddle_request_t request = nullptr;
      const heddle_status started = heddle_isparse_allreduce(&vector, &vector, HEDDLE_SUM, comm, &request);
      return started == HEDDLE_OK ? heddle_wait(&request) : started;
    },
};

// The others, whose buffers are the host's, are in the call.
void fails_for_all(Call call, Memory memory, const char* function) {
  on_ranks(3, [&](heddle_comm_t comm, int rank) {
    const Array<float> mine(rank == 1 ? memory : Memory::host, values_of(rank, 100));
    OK(heddle_barrier(comm));  // a call of the test's own would fail, too
    if (rank == 1) driver->fail(function, CUDA_ERROR_ILLEGAL_ADDRESS);
    const heddle_status wanted = rank == 1 ? HEDDLE_ERR_SYSTEM : HEDDLE_ERR_PEER;
    ASSERT_EQ(call(mine, comm), wanted) << heddle_last_error();
    int failed = 0;
    OK(heddle_comm_failed(comm, &failed));
    EXPECT_EQ(failed, 1);
  });
}

TEST(GpuApi, ACopyThatFailsIsHeardOfByAll) {
  if (!driver->is_double()) GTEST_SKIP() << "no call of CUDA's own driver can be made to fail";
  for (const Call call : kCallsWithACopy)
    fails_for_all(call, Memory::device, "cuMemcpyDtoHAsync");
}

// Before there is anything to copy to.
TEST(GpuApi, AGpuThatCannotBeUsedIsHeardOfByAll) {
  if (!driver->is_double()) GTEST_SKIP() << "no call of CUDA's own driver can be made to fail";
  for (const Call call : kCallsWithACopy) {
    if (call != bcast_again)  // which meets it when it is made
      fails_for_all(call, Memory::pool, "cuDevicePrimaryCtxRetain");
  }
}

}  // namespace
}  // namespace heddle::test
