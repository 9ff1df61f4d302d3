// Large allreduces and bcasts of GPU memory by ranks on several nodes: threads of one process, which nodes and messages between them are made up for, through the
// C API's own functions, on the double of CUDA's driver (its path is the argument).
#include <gtest/gtest.h>

#include <atomic>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "../communicator/party.hpp"
#include "api/device_buffers.hpp"
#include "comm/nodes_path.hpp"
#include "node_ranks_of_threads.hpp"

namespace {

using heddle::Code;
using heddle::Config;
using heddle::DType;
using heddle::NodesPath;
using heddle::Op;
using heddle::Status;
using heddle::test::driver;
using heddle::test::kind_of;
using heddle::test::Node;
using heddle::test::Party;
using heddle::test::TestDriver;
using heddle::test::TestMemory;

constexpr std::size_t kLeast = NodesPath::kFrom / sizeof(float);
constexpr std::size_t kMost = kLeast + 40'000;  // elements

Config little_scratch(std::size_t bytes = std::size_t{256} << 10) {
  Config config = heddle::test::quiet();
  config.device_bytes = bytes;
  return config;
}

// Magnitudes are less than kLargest.
constexpr double kLargest = 1900;
template <typename T>
std::vector<T> values(std::size_t count, int rank) {
  std::mt19937 random(static_cast<unsigned>(count) + 77U * static_cast<unsigned>(rank));
  std::vector<T> all(count);
  for (T& one : all)
    one = static_cast<T>(static_cast<double>(random() % 2'000'003) / 7e2 - 1000.0);
  return all;
}

std::vector<std::uint8_t> bytes_of(std::size_t count, int rank) {
  std::vector<std::uint8_t> all(count);
  std::mt19937 random(static_cast<unsigned>(rank));
  for (std::uint8_t& one : all)
    one = static_cast<std::uint8_t>(random());
  return all;
}

// Each node's in the order of its ranks, and these in the order of nodes: for two nodes, the bits that every algorithm has.
template <typename T>
std::vector<T> sum_of(const std::vector<std::uint64_t>& nodes, std::size_t count) {
  std::vector<T> all;
  for (std::uint64_t node = 0; node < nodes.size(); ++node) {
    std::vector<T> here;
    for (std::size_t r = 0; r < nodes.size(); ++r) {
      if (nodes[r] != node) continue;
      const std::vector<T> one = values<T>(count, static_cast<int>(r));
      if (here.empty()) here.resize(count);
      const bool first = std::find(nodes.begin(), nodes.end(), node) == nodes.begin() + static_cast<long>(r);
      for (std::size_t i = 0; i < count; ++i)
        here[i] = first ? one[i] : static_cast<T>(here[i] + one[i]);
    }
    if (here.empty()) continue;
    if (all.empty()) {
      all = here;
    } else {
      for (std::size_t i = 0; i < count; ++i)
        all[i] = static_cast<T>(all[i] + here[i]);
    }
  }
  return all;
}

// A rank: its communicator as the C API has it, and its buffers.
class Seat {
 public:
  Seat(Party& party, int rank, const Config& config, Node& all, int devices = 1)
      : in(*driver, kind_of(rank, 0), kMost * 8 + 8, rank % devices),
        out(*driver, kind_of(2 * rank, 1), kMost * 8 + 8, rank % devices),
        rank_(rank),
        all_(all) {
    comm.gpu.configure({true, config.pinned_bytes});
    auto made = heddle::Communicator::create(party.bootstrap(rank), config);
    EXPECT_TRUE(made.ok()) << made.status().message();
    comm.communicator = std::move(made).value();
  }

  Status sum(const void* from, void* to, std::size_t count, DType type) {
    return heddle::edge::allreduce_anywhere(comm, {from, to, count, type, Op::sum});
  }
  Status bcast(void* buffer, std::size_t bytes, int root) {
    return heddle::edge::bcast_anywhere(comm, buffer, bytes, root);
  }
  NodesPath& path() { return *comm.communicator->nodes_path(); }
  // Whether the GPUs did it.
  bool by_gpus(const std::function<void()>& call) {
    const std::uint64_t before = path().served();
    call();
    return path().served() > before;
  }
  // Makes the next call of a function fail, on whichever rank makes it.
  void fail_next(const char* name) {
    all_.counted(name, [&] {
      if (rank_ == 0) driver->fail(name, CUDA_ERROR_ILLEGAL_ADDRESS);
    });
  }

  // A sum of values(), that must be right.
  template <typename T>
  bool check(const std::vector<std::uint64_t>& nodes, std::size_t count, DType type, std::size_t at,
             bool in_place, bool on_host = false) {
    std::vector<T> mine = values<T>(count, rank_);
    const TestMemory& from = in_place ? out : in;
    from.put(mine.data(), count * sizeof(T), at);
    void* const to = out.as<char>() + at;
    const bool served = by_gpus([&] {
      const Status status =
          on_host ? sum(mine.data(), mine.data(), count, type) : sum(from.as<char>() + at, to, count, type);
      EXPECT_TRUE(status.ok()) << status.message();
    });
    if (!on_host) out.get(mine.data(), count * sizeof(T), at);
    const std::vector<T> wanted = sum_of<T>(nodes, count);
    // The host's order may be another one: each addition of floats rounds by half an epsilon of what may be the sum of all magnitudes.
    const double ranks = static_cast<double>(nodes.size());
    const double most = served ? 0.0 : ranks * FLT_EPSILON * ranks * kLargest;
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i)
      wrong += std::abs(static_cast<double>(mine[i]) - static_cast<double>(wanted[i])) <= most ? 0 : 1;
    EXPECT_EQ(wrong, 0U) << "rank " << rank_ << ", " << count << " elements at " << at
                         << (in_place ? ", in place" : "") << (served ? ", by GPUs" : ", by images");
    return served;
  }
  // A bcast of bytes_of(), that must be right.
  bool check_bcast(int root, std::size_t bytes, std::size_t at, bool on_host = false) {
    const std::vector<std::uint8_t> wanted = bytes_of(bytes, root);
    std::vector<std::uint8_t> mine = bytes_of(bytes, rank_);
    out.put(mine.data(), bytes, at);
    const bool served = by_gpus([&] {
      const Status status =
          bcast(on_host ? static_cast<void*>(mine.data()) : out.as<char>() + at, bytes, root);
      EXPECT_TRUE(status.ok()) << status.message();
    });
    if (!on_host) out.get(mine.data(), bytes, at);
    EXPECT_EQ(mine, wanted) << "rank " << rank_ << ", " << bytes << " bytes at " << at << " from " << root;
    return served;
  }
  // Calls until the GPUs serve them.
  int begin(int most = 20) {
    return calls_until_served(most, [this] { return sum(out.data(), out.data(), kLeast, DType::i32); });
  }
  int begin_bcasts(int most = 20) {
    return calls_until_served(most, [this] { return bcast(out.data(), NodesPath::kFrom, 0); });
  }

  heddle_comm comm;
  const TestMemory in;
  const TestMemory out;

 private:
  template <typename Call>
  int calls_until_served(int most, const Call& call) {
    for (int i = 1; i <= most; ++i) {
      if (by_gpus([&] {
            const Status status = call();
            EXPECT_TRUE(status.ok()) << status.message();
          }))
        return i;
    }
    return -1;
  }

  const int rank_;
  Node& all_;
};

template <typename Body>
void on_nodes(const std::vector<std::uint64_t>& nodes, const Config& config, const Body& body,
              int devices = 1) {
  Party party(nodes);
  Node all(party.size());
  heddle::test::run_ranks(party.size(), [&](heddle::test::Rank& me) {
    Seat seat(party, me.rank, config, all, devices);
    body(seat, me.rank);
  });
}

// Every shape of nodes: alike, of one rank each, uneven, one of them with a single rank, with ranks in turns.
const std::vector<std::vector<std::uint64_t>>& shapes() {
  static const std::vector<std::vector<std::uint64_t>> all = {
      {0, 0, 1, 1}, {0, 1}, {0, 0, 0, 1, 1}, {0, 1, 1}, {0, 1, 0, 1}};
  return all;
}

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

// What fails on one rank before all shares have left the GPUs fails everywhere, and ends it; sums by images go on.
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

// In one piece nothing comes back before the nodes have told each other that all has left: the other node has its result, and learns of it when
// the next call begins.
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

const TestDriver* heddle::test::driver = nullptr;

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc != 2) return 2;
  static const TestDriver cuda(argv[1]);
  driver = &cuda;
  return RUN_ALL_TESTS();
}
