// Allreduces and bcasts of GPU memory by ranks that are threads of one process, through the C API on the
// double of CUDA's driver (its path is the argument): where all share one context, where they are on two
// devices, and where it cannot be. What is right is heddle's own result for host memory.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "../api/ranks.hpp"
#include "cuda_memory.hpp"
#include "node_ranks_of_threads.hpp"

namespace {

using heddle::test::calls;
using heddle::test::driver;
using heddle::test::kind_of;
using heddle::test::Memory;
using heddle::test::Node;
using heddle::test::TestDriver;
using heddle::test::TestMemory;
using heddle::testing_ranks::on_ranks;
using Bytes = std::vector<std::uint8_t>;

std::size_t size_of(heddle_dtype type) {
  switch (type) {
    case HEDDLE_INT8:
    case HEDDLE_UINT8:
    case HEDDLE_FLOAT8_E4M3:
    case HEDDLE_FLOAT8_E5M2:
      return 1;
    case HEDDLE_INT16:
    case HEDDLE_UINT16:
    case HEDDLE_FLOAT16:
    case HEDDLE_BFLOAT16:
      return 2;
    case HEDDLE_INT32:
    case HEDDLE_UINT32:
    case HEDDLE_FLOAT32:
      return 4;
    default:
      return 8;
  }
}

// Bits of calm numbers: the exponents stay in the middle.
Bytes values_of(heddle_dtype type, std::size_t count, int rank) {
  std::mt19937 random(static_cast<unsigned>(count) + 77U * static_cast<unsigned>(rank));
  Bytes bytes(count * size_of(type));
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    bytes[at] = static_cast<std::uint8_t>(random());
    const bool last = (at + 1) % size_of(type) == 0;
    const bool floating = type >= HEDDLE_FLOAT16;
    if (last && floating) bytes[at] = static_cast<std::uint8_t>(0x3c | (bytes[at] & 0x83));
  }
  return bytes;
}

struct Sum {
  heddle_dtype type;
  heddle_op op;
  std::size_t count;
  std::size_t in_at;
  std::size_t out_at;
  bool in_place;
};

class Buffers {
 public:
  Buffers(int rank, int shift, int device)
      : in(*driver, kind_of(rank, shift), kBytes, device),
        out(*driver, kind_of(2 * rank, shift + 1), kBytes, device) {}
  static constexpr std::size_t kBytes = std::size_t{3} << 20;
  const TestMemory in;
  const TestMemory out;
};

// By the GPUs, and by the host: the same bits.
void compare(Node& node, heddle_comm_t comm, int rank, const Buffers& b, const Sum& sum) {
  const Bytes mine = values_of(sum.type, sum.count, rank);
  Bytes wanted(mine.size());
  Bytes got(mine.size());
  const TestMemory& from = sum.in_place ? b.out : b.in;
  const std::size_t from_at = sum.in_place ? sum.out_at : sum.in_at;
  from.put(mine.data(), mine.size(), from_at);
  const int kernels = node.counted("cuLaunchKernel", [&] {
    OK(heddle_allreduce(sum.in_place ? HEDDLE_IN_PLACE : b.in.as<char>() + sum.in_at,
                        b.out.as<char>() + sum.out_at, sum.count, sum.type, sum.op, comm));
  });
  EXPECT_EQ(kernels > 0, sum.count > 0) << "by images";
  OK(heddle_allreduce(mine.data(), wanted.data(), sum.count, sum.type, sum.op, comm));
  b.out.get(got.data(), got.size(), sum.out_at);
  ASSERT_EQ(got, wanted) << "type " << sum.type << " op " << sum.op << " count " << sum.count << " at "
                         << sum.in_at << " and " << sum.out_at << (sum.in_place ? " in place" : "");
}

void compare_all(Node& node, heddle_comm_t comm, int rank, const Buffers& b) {
  for (const heddle_dtype type :
       {HEDDLE_INT8, HEDDLE_UINT16, HEDDLE_INT32, HEDDLE_INT64, HEDDLE_FLOAT16, HEDDLE_BFLOAT16,
        HEDDLE_FLOAT8_E4M3, HEDDLE_FLOAT8_E5M2, HEDDLE_FLOAT32, HEDDLE_FLOAT64}) {
    for (const heddle_op op : {HEDDLE_SUM, HEDDLE_MAX})
      compare(node, comm, rank, b, {type, op, 1037, 0, 0, op == HEDDLE_MAX});
  }
  for (const std::size_t count : {0, 1, 2, 63, 10'001, 16'384, 16'385, 70'001, 250'003}) {
    compare(node, comm, rank, b, {HEDDLE_FLOAT32, HEDDLE_SUM, count, 0, 0, false});
    compare(node, comm, rank, b, {HEDDLE_FLOAT32, HEDDLE_SUM, count, 0, 4, true});
    compare(node, comm, rank, b,
            {HEDDLE_FLOAT32, HEDDLE_SUM, count, 4 * static_cast<std::size_t>(rank), 3, false});
  }
}

void bcasts(Node& node, heddle_comm_t comm, int rank, const Buffers& b) {
  for (const std::size_t bytes : {1, 1037, 250'003}) {
    const int root = static_cast<int>(bytes) % node.ranks();
    Bytes mine = values_of(HEDDLE_INT8, bytes, rank);
    b.in.put(mine.data(), bytes, 5);
    const int copies =
        node.counted("cuMemcpyDtoDAsync", [&] { OK(heddle_bcast(b.in.as<char>() + 5, bytes, root, comm)); });
    EXPECT_GE(copies, node.ranks() - 1);
    b.in.get(mine.data(), bytes, 5);
    ASSERT_EQ(mine, values_of(HEDDLE_INT8, bytes, root));
  }
}

// A kernel of the caller's that is still to come when the call begins.
void after_the_default_stream(heddle_comm_t comm, int rank, int ranks, const Buffers& b) {
  const auto write_later = driver->find<void (*)(void*, const void*, std::size_t)>("fake_cuda_write_later");
  const std::int32_t mine = 100 + rank;
  std::int32_t sum = -1;
  b.in.put(&sum, sizeof sum);
  write_later(b.in.data(), &mine, sizeof mine);
  OK(heddle_allreduce(b.in.data(), b.out.data(), 1, HEDDLE_INT32, HEDDLE_SUM, comm));
  b.out.get(&sum, sizeof sum);
  EXPECT_EQ(sum, 100 * ranks + ranks * (ranks - 1) / 2);
  // And one that would write the output before.
  write_later(b.out.data(), &mine, sizeof mine);
  OK(heddle_bcast(b.out.data(), 4, 0, comm));
  b.out.get(&sum, sizeof sum);
  EXPECT_EQ(sum, 100);
}

void run_node(int ranks, int devices) {
  Node node(ranks);
  on_ranks(ranks, [&](heddle_comm_t comm, int rank) {
    for (int shift = 0; shift < 4; shift += 3) {
      const Buffers b(rank, shift, rank % devices);
      ASSERT_NE(node.begin(comm, b.out.data()), -1);
      compare_all(node, comm, rank, b);
      bcasts(node, comm, rank, b);
      after_the_default_stream(comm, rank, ranks, b);
    }
  });
}

TEST(GpuNode, InOneContext) {
  for (int ranks = 2; ranks <= 4; ++ranks) {
    const int before = calls("cuIpcOpenMemHandle") + calls("cuIpcGetMemHandle");
    run_node(ranks, 1);
    EXPECT_EQ(calls("cuIpcOpenMemHandle") + calls("cuIpcGetMemHandle"), before);
  }
}

TEST(GpuNode, OnTwoDevices) {
  run_node(2, 2);
  run_node(4, 2);
  EXPECT_GT(calls("cuCtxEnablePeerAccess"), 0);
}

// Two contexts on one device cannot use each other's memory.
TEST(GpuNode, InTwoContextsByImages) {
  Node node(2);
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    CUcontext context = driver->primary(0);
    if (rank == 1) {
      CUcontext made = nullptr;
      driver->call<PFN_cuCtxCreate_v3020>("cuCtxCreate_v2", &made, 0U, CUdevice{0});
      driver->set_current(nullptr);
      context = made;
    }
    const TestMemory buffer(*driver, Memory::device, 100, 0, context);
    EXPECT_EQ(node.begin(comm, buffer.data(), 20), -1);
    const std::int32_t mine = rank + 1;
    std::int32_t sum = 0;
    buffer.put(&mine, sizeof mine);
    OK(heddle_allreduce(HEDDLE_IN_PLACE, buffer.data(), 1, HEDDLE_INT32, HEDDLE_SUM, comm));
    buffer.get(&sum, sizeof sum);
    EXPECT_EQ(sum, 3);
  });
}

// What is not for the GPUs goes on meanwhile: types without a kernel, host memory, requests.
TEST(GpuNode, BesideIt) {
  Node node(3);
  on_ranks(3, [&](heddle_comm_t comm, int rank) {
    const Buffers b(rank, 0, 0);
    ASSERT_NE(node.begin(comm, b.out.data()), -1);
    long double wide[3] = {1.0L + static_cast<long double>(rank), 2, 3};
    b.in.put(wide, sizeof wide);
    const int kernels = node.counted("cuLaunchKernel", [&] {
      OK(heddle_allreduce(b.in.data(), b.out.data(), 3, HEDDLE_LONG_DOUBLE, HEDDLE_SUM, comm));
    });
    EXPECT_EQ(kernels, 0);
    b.out.get(wide, sizeof wide);
    EXPECT_EQ(wide[0], 6.0L);
    std::int32_t one = 1;
    b.in.put(&one, sizeof one);
    heddle_request_t request = nullptr;
    OK(heddle_iallreduce(b.in.data(), b.out.data(), 1, HEDDLE_INT32, HEDDLE_SUM, comm, &request));
    OK(heddle_allreduce(HEDDLE_IN_PLACE, b.in.data(), 1, HEDDLE_INT32, HEDDLE_SUM, comm));
    OK(heddle_wait(&request));
    std::int32_t sum = 0;
    b.out.get(&sum, sizeof sum);
    EXPECT_EQ(sum, 3);
    b.in.get(&sum, sizeof sum);
    EXPECT_EQ(sum, 3);
    OK(heddle_allreduce(&one, &sum, 1, HEDDLE_INT32, HEDDLE_SUM, comm));
    EXPECT_EQ(sum, 3);
    compare(node, comm, rank, b, {HEDDLE_FLOAT32, HEDDLE_SUM, 1037, 0, 0, false});
  });
}

// All ranks are told of one's failure.
TEST(GpuNode, OneFails) {
  Node node(3);
  on_ranks(3, [&](heddle_comm_t comm, int rank) {
    const Buffers b(rank, 0, 0);
    ASSERT_NE(node.begin(comm, b.out.data()), -1);
    TestMemory freed(*driver, Memory::device, 100);
    void* const nowhere = freed.lose();
    const heddle_status status = heddle_allreduce(HEDDLE_IN_PLACE, rank == 1 ? nowhere : b.out.data(), 1,
                                                  HEDDLE_INT32, HEDDLE_SUM, comm);
    EXPECT_EQ(status, rank == 1 ? HEDDLE_ERR_ARGUMENT : HEDDLE_ERR_PEER) << heddle_last_error();
    const std::string wanted = rank == 1 ? "freed" : "rank 1 could not do its part";
    EXPECT_NE(std::string(heddle_last_error()).find(wanted), std::string::npos) << heddle_last_error();
    ASSERT_NE(node.begin(comm, b.out.data()), -1);
  });
}

// Calls of different lengths go by images, where the host says who calls what.
TEST(GpuNode, CallsThatDiffer) {
  for (const int count : {10, 30'000}) {
    for (const bool apart : {false, true}) {
      Node node(2);
      on_ranks(2, [&](heddle_comm_t comm, int rank) {
        const int device = apart ? rank : 0;
        const Buffers b(device, 0, 0);
        ASSERT_NE(node.begin(comm, b.out.data()), -1);
        const auto length = static_cast<std::size_t>(rank == 1 ? count + 1 : count);
        EXPECT_EQ(heddle_allreduce(b.in.data(), b.out.data(), length, HEDDLE_INT32, HEDDLE_SUM, comm),
                  HEDDLE_ERR_ARGUMENT);
        EXPECT_NE(std::string(heddle_last_error()).find("is in an allreduce of"), std::string::npos)
            << heddle_last_error();
      });
    }
  }
}

}  // namespace

const TestDriver* heddle::test::driver = nullptr;

namespace {

// No kernel is loaded by its launch, where the driver may wait for what another rank's stream is about to do.
class NoneLoadedLate : public ::testing::Environment {
 public:
  void TearDown() override { EXPECT_EQ(driver->calls("a load at a launch"), 0); }
};

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc != 2) return 2;
  // Little scratch, so that vectors are longer; and one algorithm on the host, whose order is that of the
  // ranks.
  setenv("HEDDLE_DEVICE_BYTES", "64K", 1);
  setenv("HEDDLE_ALGORITHM", "allreduce:team", 1);
  setenv("HEDDLE_MEASURE", "0", 1);
  static const TestDriver cuda(argv[1]);
  driver = &cuda;
  ::testing::AddGlobalTestEnvironment(new NoneLoadedLate);
  return RUN_ALL_TESTS();
}
