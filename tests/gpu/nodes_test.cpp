// Large allreduces and bcasts of GPU memory by ranks on several nodes, with messages between them in the
// process's memory; on the double of CUDA's driver (its path is the argument).
#include <atomic>
#include <cstring>

#include "nodes_ranks.hpp"

namespace heddle::test {
namespace {

TEST(GpuNodes, Sums) {
  for (const std::vector<std::uint64_t>& nodes : shapes()) {
    on_nodes(
        nodes, little_scratch(),
        [&](Seat& seat, int) {
          ASSERT_EQ(seat.begin(), 9);
          for (const std::size_t count : {kLeast, kMost - 3}) {
            EXPECT_TRUE(seat.check<float>(nodes, count, DType::f32, 0, false));
            EXPECT_TRUE(seat.check<float>(nodes, count, DType::f32, 4, true));
          }
          EXPECT_TRUE(seat.check<double>(nodes, kLeast, DType::f64, 8, false));
          // Less than what it takes.
          EXPECT_FALSE(seat.check<float>(nodes, kLeast - 1, DType::f32, 0, false));
        },
        2);
  }
}

// From every rank: the first of its node and others, with a share of the pieces and without one.
TEST(GpuNodes, Bcasts) {
  for (const std::vector<std::uint64_t>& nodes : shapes()) {
    const int ranks = static_cast<int>(nodes.size());
    on_nodes(
        nodes, little_scratch(),
        [&](Seat& seat, int) {
          ASSERT_EQ(seat.begin_bcasts(), 9);
          for (int root = 0; root < ranks; ++root) {
            EXPECT_TRUE(seat.check_bcast(root, NodesPath::kFrom, 0));
            EXPECT_TRUE(seat.check_bcast(root, NodesPath::kFrom + 40'001, 3));
          }
          EXPECT_FALSE(seat.check_bcast(0, NodesPath::kFrom - 1, 0));
          EXPECT_TRUE(seat.check<float>(nodes, kLeast, DType::f32, 0, false));
        },
        2);
  }
}

// Sums and bcasts count alike, and agree together.
TEST(GpuNodes, BcastsAmongSums) {
  const std::vector<std::uint64_t> nodes = {0, 0, 1, 1, 2, 2};
  on_nodes(nodes, little_scratch(std::size_t{8} << 20), [&](Seat& seat, int rank) {
    for (int i = 0; i < 4; ++i) {
      EXPECT_FALSE(seat.check<std::int32_t>(nodes, kLeast, DType::i32, 0, false));
      EXPECT_FALSE(seat.check_bcast(i, NodesPath::kFrom, 0));
    }
    for (int root = 0; root < 6; ++root) {
      EXPECT_TRUE(seat.check_bcast(root, NodesPath::kFrom * 2, 0));
      EXPECT_TRUE(seat.check<std::int32_t>(nodes, kLeast, DType::i32, 0, false));
    }
    EXPECT_FALSE(seat.check_bcast(5, NodesPath::kFrom, 0, rank == 5));
    EXPECT_TRUE(seat.check_bcast(5, NodesPath::kFrom, 0));
  });
}

TEST(GpuNodes, ThreeNodes) {
  const std::vector<std::uint64_t> nodes = {0, 0, 1, 1, 2, 2};
  on_nodes(nodes, little_scratch(std::size_t{8} << 20), [&](Seat& seat, int) {
    ASSERT_EQ(seat.begin(), 9);
    EXPECT_TRUE(seat.check<std::int32_t>(nodes, kMost, DType::i32, 0, false));
    EXPECT_TRUE(seat.check<std::int32_t>(nodes, kMost, DType::i32, 4, true));
  });
}

// With HEDDLE_REPRODUCIBLE also on more nodes than two, where algorithms differ in their order.
TEST(GpuNodes, ReproducibleSumsHaveTheHostsBits) {
  const std::vector<std::uint64_t> nodes = {0, 0, 1, 1, 2, 3, 3, 4, 4};
  Config config = little_scratch();
  config.reproducible = true;
  on_nodes(nodes, config, [&](Seat& seat, int rank) {
    const std::vector<float> mine = values<float>(kMost, rank);
    std::vector<float> on_host = mine;
    ASSERT_EQ(seat.begin(), 9);
    EXPECT_TRUE(seat.sum(on_host.data(), on_host.data(), kMost, DType::f32).ok());
    for (const std::size_t count : {kMost, kLeast}) {
      seat.in.put(mine.data(), count * sizeof(float));
      EXPECT_TRUE(seat.by_gpus(
          [&] { EXPECT_TRUE(seat.sum(seat.in.data(), seat.out.data(), count, DType::f32).ok()); }));
      std::vector<float> by_gpus(count);
      seat.out.get(by_gpus.data(), count * sizeof(float));
      EXPECT_EQ(std::memcmp(by_gpus.data(), on_host.data(), count * sizeof(float)), 0) << count;
    }
  });
}

// A kernel of the caller's that is still to come when the call begins.
TEST(GpuNodes, AfterTheDefaultStream) {
  on_nodes({0, 0, 1}, little_scratch(), [&](Seat& seat, int rank) {
    ASSERT_EQ(seat.begin(), 9);
    const std::vector<std::int32_t> nothing(kLeast);
    seat.in.put(nothing.data(), kLeast * sizeof(std::int32_t));
    const std::int32_t mine = 100 + rank;
    driver->find<void (*)(void*, const void*, std::size_t)>("fake_cuda_write_later")(seat.in.data(), &mine,
                                                                                     sizeof mine);
    EXPECT_TRUE(seat.by_gpus(
        [&] { EXPECT_TRUE(seat.sum(seat.in.data(), seat.out.data(), kLeast, DType::i32).ok()); }));
    std::int32_t sum = 0;
    seat.out.get(&sum, sizeof sum);
    EXPECT_EQ(sum, 303);
  });
}

// A rank passes host memory in one call, and then in eight, and in the end the others find out.
TEST(GpuNodes, MixedMemory) {
  const std::vector<std::uint64_t> nodes = {0, 0, 1};
  on_nodes(nodes, little_scratch(), [&](Seat& seat, int rank) {
    ASSERT_EQ(seat.begin(), 9);
    EXPECT_FALSE(seat.check<float>(nodes, kLeast, DType::f32, 0, false, rank == 2));
    EXPECT_TRUE(seat.check<float>(nodes, kLeast, DType::f32, 0, false));
    for (int i = 0; i < 8; ++i)
      EXPECT_FALSE(seat.check<float>(nodes, kLeast, DType::f32, 0, false, rank == 1));
    EXPECT_FALSE(seat.path().on());
    EXPECT_FALSE(seat.check<float>(nodes, kLeast, DType::f32, 0, false));
  });
}

// One rank never has GPU memory: nothing begins, after the 8th call and after the 32nd.
TEST(GpuNodes, OneRankOnTheHost) {
  const std::vector<std::uint64_t> nodes = {0, 1};
  on_nodes(nodes, little_scratch(), [&](Seat& seat, int rank) {
    for (int i = 0; i < 34; ++i)
      ASSERT_FALSE(seat.check<float>(nodes, kLeast, DType::f32, 0, true, rank == 1));
  });
}

// Nothing has begun then, and the communicator goes on.
TEST(GpuNodes, CallsThatDiffer) {
  const std::vector<std::uint64_t> nodes = {0, 0, 1, 1};
  on_nodes(nodes, little_scratch(), [&](Seat& seat, int rank) {
    ASSERT_EQ(seat.begin(), 9);
    for (const int other : {1, 2}) {
      const auto refused = [&](const Status& status) {
        EXPECT_EQ(status.code(), Code::invalid_argument);
        EXPECT_NE(status.message().find("the ranks differ in"), std::string::npos) << status.message();
      };
      const std::size_t bytes = kMost * sizeof(float);
      refused(seat.sum(seat.in.data(), seat.out.data(), rank == other ? kMost - 1 : kMost, DType::f32));
      refused(seat.sum(seat.in.data(), seat.out.data(), kMost, rank == other ? DType::i32 : DType::f32));
      refused(seat.bcast(seat.out.data(), rank == other ? bytes - 4 : bytes, 0));
      refused(seat.bcast(seat.out.data(), bytes, rank == other ? 1 : 0));
      EXPECT_TRUE(seat.check<float>(nodes, kLeast, DType::f32, 0, false));
    }
  });
}

// What fails on one rank before all shares have left the GPUs fails everywhere, and ends it; sums by images
// go on.
TEST(GpuNodes, OneFails) {
  const std::vector<std::uint64_t> nodes = {0, 0, 1, 1};
  for (const char* name : {"cuMemcpyDtoDAsync", "cuLaunchKernel", "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync"}) {
    std::atomic<int> own = 0;
    on_nodes(nodes, little_scratch(), [&](Seat& seat, int rank) {
      ASSERT_EQ(seat.begin(), 9);
      seat.fail_next(name);
      const Status status = seat.sum(seat.in.data(), seat.out.data(), kMost, DType::f32);
      EXPECT_FALSE(status.ok()) << name << " on rank " << rank;
      own += status.code() == Code::system ? 1 : 0;
      const char* const wanted =
          status.code() == Code::system ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "could not do its part";
      EXPECT_NE(status.message().find(wanted), std::string::npos) << status.message();
      EXPECT_FALSE(seat.path().on());
      EXPECT_FALSE(seat.check<float>(nodes, kLeast, DType::f32, 0, false));
    });
    EXPECT_EQ(own, 1) << name;
  }
}

// The first to copy is the root, then the others of its node.
TEST(GpuNodes, OneFailsInABcast) {
  const std::vector<std::uint64_t> nodes = {0, 0, 1, 1};
  for (const char* name : {"cuMemcpyDtoDAsync", "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync"}) {
    std::atomic<int> own = 0;
    on_nodes(nodes, little_scratch(), [&](Seat& seat, int rank) {
      ASSERT_EQ(seat.begin(), 9);
      seat.fail_next(name);
      const Status status = seat.bcast(seat.out.data(), NodesPath::kFrom, 1);
      EXPECT_FALSE(status.ok()) << name << " on rank " << rank;
      own += status.code() == Code::system ? 1 : 0;
      EXPECT_FALSE(seat.path().on());
      EXPECT_FALSE(seat.check_bcast(1, NodesPath::kFrom, 0));
    });
    EXPECT_EQ(own, 1) << name;
  }
}

// In one piece nothing comes back before the nodes have told each other that all has left: the other node has
// its result, and learns of it when the next call begins.
TEST(GpuNodes, OneNodeFailsLate) {
  const std::vector<std::uint64_t> nodes = {0, 0, 0, 0, 1, 1, 1, 1};
  std::atomic<int> failed[2] = {0, 0};
  on_nodes(nodes, little_scratch(std::size_t{16} << 20), [&](Seat& seat, int rank) {
    ASSERT_EQ(seat.begin(), 9);
    const std::vector<float> mine = values<float>(kLeast, rank);
    seat.in.put(mine.data(), kLeast * sizeof(float));
    seat.fail_next("cuMemcpyHtoDAsync");
    const Status status = seat.sum(seat.in.data(), seat.out.data(), kLeast, DType::f32);
    failed[rank / 4] += status.ok() ? 0 : 1;
    if (status.ok()) {
      std::vector<float> got(kLeast);
      seat.out.get(got.data(), kLeast * sizeof(float));
      EXPECT_EQ(got, sum_of<float>(nodes, kLeast));
    }
    EXPECT_TRUE(seat.path().on());
    EXPECT_FALSE(seat.check<float>(nodes, kLeast, DType::f32, 0, false));
    EXPECT_FALSE(seat.path().on());
  });
  EXPECT_EQ(failed[0] + failed[1], 4);
  EXPECT_TRUE(failed[0] == 0 || failed[0] == 4) << failed[0];
}

// Nothing can be set up, on any rank, where one lacks pinned memory.
TEST(GpuNodes, NoPinnedMemory) {
  const std::vector<std::uint64_t> nodes = {0, 0, 1};
  on_nodes(nodes, little_scratch(), [&](Seat& seat, int rank) {
    if (rank == 2) seat.comm.gpu.configure({true, 4096});
    EXPECT_EQ(seat.begin(), -1);
    EXPECT_FALSE(seat.check<float>(nodes, kLeast, DType::f32, 0, false));
  });
}

}  // namespace
}  // namespace heddle::test

const heddle::test::TestDriver* heddle::test::driver = nullptr;

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc != 2) return 2;
  static const heddle::test::TestDriver cuda(argv[1]);
  heddle::test::driver = &cuda;
  return RUN_ALL_TESTS();
}
