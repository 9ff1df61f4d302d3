// Large allreduces and bcasts of GPU memory by ranks on several nodes whose network reaches that memory: on
// doubles of CUDA's driver and of the network (the paths are the arguments).
#include <atomic>
#include <cstdlib>
#include <numeric>

#include "nodes_ranks.hpp"

namespace heddle::test {
namespace {

std::string modules;

Config direct(std::size_t bytes = std::size_t{1} << 20) {
  Config config = little_scratch(bytes);
  config.transports = "shm,verbs";
  config.modules = modules;
  return config;
}

// What the network double does wrong, for as long as it lives.
class Wrong {
 public:
  explicit Wrong(const char* how) { setenv("NETWORK_DOUBLE", how, 1); }
  Wrong(const Wrong&) = delete;
  Wrong& operator=(const Wrong&) = delete;
  ~Wrong() { unsetenv("NETWORK_DOUBLE"); }
};

// What the ends of vectors come to, where they are too short for the network's device; of one that goes by
// the host each node copies all, twice.
constexpr std::size_t kShortMessages = NodesPath::kFrom / 8;

// Bytes that all ranks' calls copy between GPUs and the host.
std::size_t over_the_bus(Node& all, const std::function<void()>& call) {
  std::size_t back = 0;
  const std::size_t there =
      all.copied("cuMemcpyDtoHAsync", [&] { back = all.copied("cuMemcpyHtoDAsync", call); });
  return there + back;
}

TEST(GpuDirect, SumsStayOnTheGpus) {
  for (const std::vector<std::uint64_t>& nodes : shapes()) {
    Party party(nodes);
    Node all(party.size());
    run_ranks(party.size(), [&](Rank& me) {
      Seat seat(party, me.rank, direct(), all, 2);
      ASSERT_EQ(seat.begin(), 9);
      EXPECT_TRUE(seat.path().is_direct());
      const std::vector<float> mine = values<float>(kMost, me.rank);
      seat.in.put(mine.data(), kMost * sizeof(float));
      const std::size_t copied = over_the_bus(
          all, [&] { EXPECT_TRUE(seat.sum(seat.in.data(), seat.out.data(), kMost, DType::f32).ok()); });
      EXPECT_LT(copied, kShortMessages);
      std::vector<float> got(kMost);
      seat.out.get(got.data(), kMost * sizeof(float));
      EXPECT_EQ(got, sum_of<float>(nodes, kMost));
      EXPECT_TRUE(seat.check<float>(nodes, kLeast, DType::f32, 4, true));
      EXPECT_TRUE(seat.check<double>(nodes, kLeast, DType::f64, 8, false));
    });
  }
}

// So much scratch that the shortest vector is four pieces, and a few bytes more are one of their own.
Config in_four_pieces(std::size_t lanes) {
  return direct((2 * lanes + 3) * (std::size_t{256} << 10) / lanes);
}

// The last piece is of some bytes: such messages are the host's to copy.
TEST(GpuDirect, ShortMessages) {
  for (const std::vector<std::uint64_t>& nodes :
       {std::vector<std::uint64_t>{0, 1}, {0, 0, 1, 1}, {0, 1, 2}}) {
    Party party(nodes);
    Node all(party.size());
    run_ranks(party.size(), [&](Rank& me) {
      Seat seat(party, me.rank, in_four_pieces(nodes[1] == 0 ? 2 : 1), all);
      ASSERT_EQ(seat.begin(), 9);
      ASSERT_TRUE(seat.path().is_direct());
      for (const std::size_t more : {1, 2, 3, 17, 1000}) {
        EXPECT_GT(
            over_the_bus(all,
                         [&] {
                           EXPECT_TRUE(
                               seat.sum(seat.in.data(), seat.out.data(), kLeast + more, DType::i32).ok());
                         }),
            0U);
        EXPECT_TRUE(seat.check<std::int32_t>(nodes, kLeast + more, DType::i32, 4, false)) << more;
        EXPECT_TRUE(seat.check_bcast(1, NodesPath::kFrom + more, 1)) << more;
      }
    });
  }
}

TEST(GpuDirect, Bcasts) {
  for (const std::vector<std::uint64_t>& nodes : shapes()) {
    Party party(nodes);
    Node all(party.size());
    run_ranks(party.size(), [&](Rank& me) {
      Seat seat(party, me.rank, direct(), all, 2);
      ASSERT_EQ(seat.begin_bcasts(), 9);
      EXPECT_TRUE(seat.path().is_direct());
      for (int root = 0; root < party.size(); ++root) {
        const std::size_t copied =
            over_the_bus(all, [&] { EXPECT_TRUE(seat.bcast(seat.out.data(), NodesPath::kFrom, root).ok()); });
        EXPECT_LT(copied, kShortMessages);
        EXPECT_TRUE(seat.check_bcast(root, NodesPath::kFrom + 40'001, 3));
      }
    });
  }
}

// Every algorithm that is the cheapest for some number of nodes and size.
TEST(GpuDirect, ManyNodes) {
  for (const std::size_t count : {3U, 4U, 5U, 8U}) {
    std::vector<std::uint64_t> nodes(count);
    std::iota(nodes.begin(), nodes.end(), 0);
    for (const std::size_t scratch : {std::size_t{1} << 20, std::size_t{64} << 20}) {
      on_nodes(nodes, direct(scratch), [&](Seat& seat, int) {
        ASSERT_EQ(seat.begin(), 9);
        ASSERT_TRUE(seat.path().is_direct());
        EXPECT_TRUE(seat.check<std::int32_t>(nodes, kLeast, DType::i32, 0, false));
        EXPECT_TRUE(seat.check<std::int32_t>(nodes, kMost - 1, DType::i32, 4, true));
        EXPECT_TRUE(seat.check_bcast(1, NodesPath::kFrom + 4321, 0));
      });
    }
  }
}

// Before the GPU uses what has come it waits for the network's writes to be there.
TEST(GpuDirect, WritesAreMadeVisible) {
  Party party({0, 1});
  Node all(2);
  run_ranks(2, [&](Rank& me) {
    Seat seat(party, me.rank, direct(), all);
    ASSERT_EQ(seat.begin(), 9);
    const int flushes = all.counted("cuFlushGPUDirectRDMAWrites", [&] {
      EXPECT_TRUE(seat.sum(seat.in.data(), seat.out.data(), kLeast, DType::f32).ok());
    });
    const int folds = all.counted("cuLaunchKernel", [&] {
      EXPECT_TRUE(seat.sum(seat.in.data(), seat.out.data(), kLeast, DType::f32).ok());
    });
    // Before each fold, and once for each of four pieces that a rank fetches.
    EXPECT_GE(flushes, folds + 2 * 4);
    EXPECT_GT(folds, 0);
  });
}

// Where the network or a GPU cannot, or it does not pay, or it is not wanted, shares go by pinned memory.
void expect_staged(const Config& config, const std::function<void(Seat&, int)>& before = {}) {
  const std::vector<std::uint64_t> nodes = {0, 0, 1};
  on_nodes(nodes, config, [&](Seat& seat, int rank) {
    if (before) before(seat, rank);
    ASSERT_EQ(seat.begin(), 9);
    EXPECT_FALSE(seat.path().is_direct());
    EXPECT_TRUE(seat.check<float>(nodes, kMost, DType::f32, 0, false));
  });
}

TEST(GpuDirect, TheNetworkRefuses) {
  const Wrong wrong("refuses");
  expect_staged(direct());
}
// Taken where somebody asks for it.
void expect_when_asked_for(const char* what) {
  const Wrong wrong(what);
  expect_staged(direct());
  Config config = direct();
  config.gpu_direct = true;
  const std::vector<std::uint64_t> nodes = {0, 0, 1};
  on_nodes(nodes, config, [&](Seat& seat, int) {
    ASSERT_EQ(seat.begin(), 9);
    EXPECT_TRUE(seat.path().is_direct());
    EXPECT_TRUE(seat.check<float>(nodes, kMost, DType::f32, 0, false));
  });
}
TEST(GpuDirect, ReadsAreSlow) {
  expect_when_asked_for("slow");
}
TEST(GpuDirect, NobodyHasMeasured) {
  expect_when_asked_for("unmeasured");
}
TEST(GpuDirect, NotWanted) {
  Config config = direct();
  config.gpu_direct = false;
  expect_staged(config);
}
TEST(GpuDirect, NoDmabufOnOneRank) {
  expect_staged(direct(), [](Seat& seat, int) { seat.fail_next("cuMemGetHandleForAddressRange"); });
}
TEST(GpuDirect, WritesCannotBeMadeVisible) {
  setenv("FAKE_CUDA_NO_FLUSH", "1", 1);
  expect_staged(direct());
  unsetenv("FAKE_CUDA_NO_FLUSH");
}

// What fails on one rank, in its node's part, between messages, and in messages that the host copies, fails
// everywhere, in that call alone.
TEST(GpuDirect, OneFails) {
  const std::vector<std::uint64_t> nodes = {0, 0, 1, 1};
  for (const char* name : {"cuMemcpyDtoDAsync", "cuLaunchKernel", "cuFlushGPUDirectRDMAWrites",
                           "cuStreamSynchronize", "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync"}) {
    std::atomic<int> own = 0;
    on_nodes(nodes, in_four_pieces(2), [&](Seat& seat, int rank) {
      ASSERT_EQ(seat.begin(), 9);
      ASSERT_TRUE(seat.path().is_direct());
      seat.fail_next(name);
      const Status status = seat.sum(seat.in.data(), seat.out.data(), kLeast + 5, DType::f32);
      EXPECT_FALSE(status.ok()) << name << " on rank " << rank;
      own += status.code() == Code::system ? 1 : 0;
      EXPECT_FALSE(seat.path().on()) << name;
      EXPECT_FALSE(seat.check<float>(nodes, kLeast, DType::f32, 0, false));
    });
    EXPECT_EQ(own, 1) << name;
  }
}

// The last fold between nodes of a call that is one piece: all ranks learn of it all the same.
TEST(GpuDirect, TheLastFoldFails) {
  const std::vector<std::uint64_t> nodes = {0, 0, 0, 0, 1, 1, 1, 1};
  std::atomic<int> own = 0;
  Party party(nodes);
  Node all(party.size());
  run_ranks(party.size(), [&](Rank& me) {
    Seat seat(party, me.rank, direct(std::size_t{16} << 20), all);
    ASSERT_EQ(seat.begin(), 9);
    const auto sum = [&] { return seat.sum(seat.in.data(), seat.out.data(), kLeast, DType::f32); };
    const int folds = all.counted("cuLaunchKernel", [&] { EXPECT_TRUE(sum().ok()); });
    all.counted("cuLaunchKernel", [&] {
      if (me.rank == 0) driver->fail_after("cuLaunchKernel", folds - 1, CUDA_ERROR_ILLEGAL_ADDRESS);
    });
    const Status status = sum();
    EXPECT_FALSE(status.ok());
    own += status.code() == Code::system ? 1 : 0;
    EXPECT_FALSE(seat.path().on());
    EXPECT_FALSE(seat.path().is_direct());
    EXPECT_FALSE(seat.check<float>(nodes, kLeast, DType::f32, 0, false));
  });
  EXPECT_EQ(own, 1);
}

}  // namespace
}  // namespace heddle::test

const heddle::test::TestDriver* heddle::test::driver = nullptr;

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc != 3) return 2;
  setenv("FAKE_CUDA_DMABUF", "1", 1);
  static const heddle::test::TestDriver cuda(argv[1]);
  heddle::test::driver = &cuda;
  heddle::test::modules = argv[2];
  return RUN_ALL_TESTS();
}
