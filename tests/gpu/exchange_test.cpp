// Short vectors that kernels exchange. The kernel by itself, by its host twin: ranks are threads, whose
// blocks wait for each other as those of GPUs do. And what collectives make of it, through the C API on the
// double of CUDA's driver (its path is the argument), by ranks that are threads and have a device each.
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "../api/ranks.hpp"
#include "cuda_streams.hpp"
#include "exchange_twin.hpp"
#include "gpu/link.hpp"
#include "heddle/heddle_cuda.h"

namespace heddle::test {
namespace {

using gpu::ExchangeLayout;
using gpu::kernels::ExchangeArguments;
using gpu::kernels::kBlockBytes;
using gpu::kernels::kLeft;
using gpu::kernels::kNoRoot;
using testing_ranks::on_ranks;

const TestDriver* driver = nullptr;

#define OK(call) ASSERT_EQ(call, HEDDLE_OK) << heddle_last_error()

// ---- The kernel

// What the ranks of a node have for it.
struct Node {
  Node(std::uint32_t size, std::size_t blocks)
      : room(blocks * gpu::kernels::kBlockWords),
        slots(size, std::vector<std::uint64_t>(2 * size * room)),
        turns(size, std::vector<std::uint64_t>(blocks)),
        stopped(size) {}
  // With nothing to send.
  ExchangeArguments of(std::uint32_t rank) {
    ExchangeArguments a{};
    for (std::size_t r = 0; r < slots.size(); ++r)
      a.slots[r] = slots[r].data();
    a.room = room;
    a.turns = turns[rank].data();
    a.stopped = &stopped[rank];
    a.rank = rank;
    a.ranks = static_cast<std::uint32_t>(slots.size());
    a.root = kNoRoot;
    a.patience = 10'000'000'000;  // so that what goes wrong ends
    return a;
  }
  std::size_t room;
  std::vector<std::vector<std::uint64_t>> slots;
  std::vector<std::vector<std::uint64_t>> turns;
  std::vector<std::uint64_t> stopped;
};

unsigned blocks_of(std::size_t bytes) {
  return static_cast<unsigned>((bytes + kBlockBytes - 1) / kBlockBytes);
}

// Byte `at` of what `sender` sends in that round.
std::uint8_t byte_of(int round, std::uint32_t sender, std::size_t at) {
  return static_cast<std::uint8_t>(31 * static_cast<unsigned>(round) + 101 * sender + at * 7 + at / 256);
}

struct Round {
  std::size_t bytes;
  std::uint32_t root;
};

// One rank's part in all rounds, which are the same on all: at other addresses, and now and then late.
void take_part(Node& node, std::uint32_t rank, const std::vector<Round>& rounds) {
  std::minstd_rand random(rank + 1);
  const auto size = static_cast<std::uint32_t>(node.slots.size());
  for (std::size_t n = 0; n < rounds.size(); ++n) {
    const auto [bytes, root] = rounds[n];
    const int round = static_cast<int>(n);
    const std::size_t shift = random() % 5;
    std::vector<unsigned char> in(shift + bytes);
    for (std::size_t at = 0; at < bytes; ++at)
      in[shift + at] = byte_of(round, rank, at);
    const std::size_t apart = bytes + random() % 9;
    std::vector<unsigned char> out(shift + size * apart, 0xEE);
    ExchangeArguments a = node.of(rank);
    a.in = in.data() + shift;
    a.out = out.data() + shift;
    a.bytes = bytes;
    a.apart = apart;
    a.root = root;
    if (random() % 4 == 0) std::this_thread::yield();
    run_exchange(a, blocks_of(bytes));
    std::vector<unsigned char> wanted(out.size(), 0xEE);
    for (std::uint32_t sender = 0; sender < size; ++sender) {
      if (sender == rank || (root != kNoRoot && sender != root)) continue;
      unsigned char* const to = wanted.data() + shift + (root == kNoRoot ? sender * apart : 0);
      for (std::size_t at = 0; at < bytes; ++at)
        to[at] = byte_of(round, sender, at);
    }
    ASSERT_EQ(out, wanted) << "round " << round << ", rank " << rank << ", " << bytes << " bytes";
  }
}

TEST(Exchange, OneAfterTheOther) {
  constexpr std::size_t kBlocks = 3;
  for (std::uint32_t size = 2; size <= 5; ++size) {
    std::minstd_rand random(size);
    std::vector<Round> rounds = {{1, kNoRoot}, {kBlocks * kBlockBytes, kNoRoot}, {kBlockBytes, 0}};
    while (rounds.size() < 400) {
      const std::size_t bytes =
          random() % 3 == 0 ? 1 + random() % (kBlocks * kBlockBytes) : 1 + random() % 64;
      rounds.push_back({bytes, random() % 2 == 0 ? kNoRoot : static_cast<std::uint32_t>(random() % size)});
    }
    Node node(size, kBlocks);
    std::vector<std::thread> threads;
    for (std::uint32_t rank = 0; rank < size; ++rank)
      threads.emplace_back([&, rank] { take_part(node, rank, rounds); });
    for (std::thread& thread : threads)
      thread.join();
  }
}

// Numbers have 32 bits, and begin anew: what was written with a number that comes again is not taken for what
// comes.
TEST(Exchange, ManyBefore) {
  constexpr std::size_t kShort = 8;
  for (const std::uint32_t last : {0xFFFFFFFCU, 0x3FFFFFFCU}) {
    for (const std::uint32_t again : {4U, 5U}) {
      Node node(2, 1);
      std::vector<Round> rounds(20, Round{kShort, kNoRoot});
      for (auto& turns : node.turns)
        turns[0] = last;
      // Number last + 1 is that of the first round.
      rounds[again + 3].bytes = kBlockBytes;
      for (auto& slots : node.slots)
        std::fill(slots.begin(), slots.end(), std::uint64_t{last + again + 4} << 32);
      std::thread other([&] { take_part(node, 1, rounds); });
      take_part(node, 0, rounds);
      other.join();
      EXPECT_EQ(node.turns[0][0], last + 20);
    }
  }
}

// Of rank 0, which nobody answers.
struct Lone {
  explicit Lone(Node& node) : arguments(node.of(0)) {
    arguments.in = in.data();
    arguments.out = out.data();
    arguments.bytes = arguments.apart = in.size();
  }
  std::vector<unsigned char> in = std::vector<unsigned char>(100, 1);
  std::vector<unsigned char> out = std::vector<unsigned char>(300, 0xEE);
  ExchangeArguments arguments;
};

// Who does not come is told, and nothing is sent or waited for any more.
TEST(Exchange, OneDoesNotCome) {
  Node node(3, 1);
  Lone lone(node);
  lone.arguments.patience = 20'000'000;
  run_exchange(lone.arguments, 1);
  EXPECT_EQ(node.stopped[0], 2U);
  EXPECT_EQ(node.turns[0][0], kLeft);
  const auto sent = node.slots[1];
  lone.arguments.patience = 0;
  run_exchange(lone.arguments, 1);
  EXPECT_EQ(node.slots[1], sent);
}

TEST(Exchange, Stopped) {
  Node node(2, 1);
  Lone lone(node);
  lone.arguments.patience = 0;
  std::thread waits([&] { run_exchange(lone.arguments, 1); });
  gpu::kernels::store_system_word(node.stopped.data(), ~std::uint64_t{0});
  waits.join();
  EXPECT_EQ(node.turns[0][0], kLeft);
}

// ---- The room for it

TEST(Exchange, Layout) {
  const ExchangeLayout whole = ExchangeLayout::of(std::size_t{8} << 20, 8, 65'536);
  EXPECT_EQ(whole.most, 65'536U);
  EXPECT_EQ(whole.vector, 65'536U);
  EXPECT_LE(whole.bytes(), std::size_t{8} << 20);
  const ExchangeLayout odd = ExchangeLayout::of(std::size_t{8} << 20, 2, 5'000);
  EXPECT_EQ(odd.most, 5'000U);
  EXPECT_EQ(odd.vector, 2 * kBlockBytes);
  const ExchangeLayout little = ExchangeLayout::of(std::size_t{1} << 20, 8, 65'536);
  EXPECT_LT(little.most, 65'536U);
  EXPECT_GT(little.most, 0U);
  EXPECT_LE(little.bytes(), std::size_t{1} << 20);
  EXPECT_EQ(ExchangeLayout::of(1'000, 2, 65'536).most, 0U);
  EXPECT_EQ(ExchangeLayout::of(1'000, 2, 65'536).bytes(), 0U);
  EXPECT_EQ(ExchangeLayout::of(std::size_t{8} << 20, 8, 0).most, 0U);
}

// ---- Collectives

int exchanges() {
  return driver->calls("heddle_exchange");
}

// A value of the environment, for communicators that are made meanwhile.
class Setting {
 public:
  Setting(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;
  ~Setting() { unsetenv(name_); }

 private:
  const char* name_;
};

constexpr std::size_t kCalled = 10;  // words of a call

// How many kernels exchange in one collective of each kind, of so many words, on a stream.
int exchanges_of(int ranks, int devices, std::size_t count) {
  std::barrier barrier(ranks);
  int result = 0;
  on_ranks(ranks, [&](heddle_comm_t comm, int rank) {
    const TestStream stream(*driver, rank % devices);
    const TestWords words(*driver, rank % devices, count, rank + 1);
    OK(heddle_allreduce_on_stream(HEDDLE_IN_PLACE, words.at(), count, HEDDLE_INT32, HEDDLE_SUM, comm,
                                  stream.get()));
    stream.wait();
    barrier.arrive_and_wait();
    const int before = exchanges();
    barrier.arrive_and_wait();
    OK(heddle_allreduce_on_stream(HEDDLE_IN_PLACE, words.at(), count, HEDDLE_INT32, HEDDLE_SUM, comm,
                                  stream.get()));
    OK(heddle_bcast_on_stream(words.at(), 4 * count, 1, comm, stream.get()));
    stream.wait();
    EXPECT_EQ(words.value(), ranks * ranks * (ranks + 1) / 2);
    barrier.arrive_and_wait();
    if (rank == 0) result = exchanges() - before;
  });
  return result;
}

TEST(Exchange, WhereEachHasADevice) {
  EXPECT_EQ(exchanges_of(3, 3, 16'384), 6);
  EXPECT_EQ(exchanges_of(3, 3, 16'385), 0);
  EXPECT_EQ(exchanges_of(3, 2, 10), 0);
  EXPECT_EQ(exchanges_of(2, 1, 10), 0);
}

// Where CUDA IPC is refused, as by a container, which threads of a process do not need.
TEST(Exchange, WithoutIpc) {
  driver->find<void (*)(const char*, int, int)>("fake_cuda_fail")("cuIpcGetMemHandle",
                                                                  CUDA_ERROR_NOT_SUPPORTED, 1 << 30);
  EXPECT_EQ(exchanges_of(2, 2, 10), 4);
  driver->fail_no_more("cuIpcGetMemHandle");
}

TEST(Exchange, AsFarAsIsSaid) {
  const Setting setting("HEDDLE_EXCHANGE_BYTES", "1000");
  EXPECT_EQ(exchanges_of(2, 2, 250), 4);
  EXPECT_EQ(exchanges_of(2, 2, 251), 0);
  const Setting none("HEDDLE_EXCHANGE_BYTES", "0");
  EXPECT_EQ(exchanges_of(2, 2, 1), 0);
}

// Threads of a process do so only where they are let: another one of its may be in a call that waits for the
// one rank's kernel, and keeps the other rank from its launch.
TEST(Exchange, ThreadsHaveToBeLet) {
  const ThreadsRefused refused;
  EXPECT_EQ(exchanges_of(2, 2, 10), 0);
}

// Nor does a kernel wait where the GPU would end it, or where its launch would not return before another
// rank's.
TEST(Exchange, NotWhereKernelsMayNotWait) {
  for (const char* name : {"FAKE_CUDA_RUN_LIMIT", "CUDA_LAUNCH_BLOCKING"}) {
    const Setting setting(name, "1");
    EXPECT_EQ(exchanges_of(2, 2, 10), 0) << name;
  }
  const Setting off("CUDA_LAUNCH_BLOCKING", "0");
  EXPECT_EQ(exchanges_of(2, 2, 10), 4);
}

// All else goes on without it.
TEST(Exchange, NoPinnedWord) {
  const Setting setting("HEDDLE_PINNED_BYTES", "0");
  EXPECT_EQ(exchanges_of(2, 2, 10), 0);
}

// A stream that is late: the others' give up, the next call says so on all ranks, and the one after it begins
// anew.
TEST(Exchange, OneIsLate) {
  const Setting setting("HEDDLE_TIMEOUT", "2");
  std::barrier barrier(3);
  TestGate gate(*driver);
  on_ranks(3, [&](heddle_comm_t comm, int rank) {
    const TestStream stream(*driver, rank);
    const TestWords words(*driver, rank, 100, rank + 1);
    const auto sum = [&] {
      return heddle_allreduce_on_stream(HEDDLE_IN_PLACE, words.at(), 100, HEDDLE_INT32, HEDDLE_SUM, comm,
                                        stream.get());
    };
    OK(sum());
    stream.wait();
    if (rank == 1) gate.hold(stream);
    OK(sum());
    if (rank != 1) stream.wait();
    barrier.arrive_and_wait();
    if (rank == 1) gate.open();
    EXPECT_EQ(sum(), rank == 1 ? HEDDLE_ERR_PEER : HEDDLE_ERR_TIMEOUT) << heddle_last_error();
    const std::string text = heddle_last_error();
    const std::string wanted = rank == 1 ? "could not do its part" : "the GPU of rank";
    EXPECT_NE(text.find(wanted), std::string::npos) << text;
    stream.wait();
    words.set(rank + 1);
    OK(sum());
    stream.wait();
    EXPECT_EQ(words.value(), 6);
  });
}

// One whose launch is late keeps the others waiting, and all launches are right; also those that come after a
// call which has waited in vain.
TEST(Exchange, GraphsHaveNoDeadline) {
  const Setting setting("HEDDLE_TIMEOUT", "2");
  std::barrier barrier(3);
  TestGate gate(*driver);
  TestGate gate_of_call(*driver);
  on_ranks(3, [&](heddle_comm_t comm, int rank) {
    const TestStream stream(*driver, rank);
    const TestWords words(*driver, rank, kCalled, rank + 1);
    const auto sum = [&] {
      return heddle_allreduce_on_stream(HEDDLE_IN_PLACE, words.at(), kCalled, HEDDLE_INT32, HEDDLE_SUM, comm,
                                        stream.get());
    };
    OK(sum());
    stream.wait();
    TestGraph graph(*driver, stream);
    graph.begin();
    OK(sum());
    ASSERT_EQ(graph.end(), CUDA_SUCCESS);
    barrier.arrive_and_wait();
    int launches = 1;
    const auto launch = [&](const char* what) {
      // Other words each time, so that those of an earlier launch are seen.
      const int factor = ++launches;
      words.set(factor * (rank + 1));
      graph.launch(stream);
      stream.wait();
      EXPECT_EQ(words.value(), factor * 6) << what;
    };
    // Nobody could say when the others' time would be over: it is long over then.
    std::thread opens;
    if (rank == 1) {
      gate.hold(stream);
      opens = std::thread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(2500));
        gate.open();
      });
    }
    launch("one is late");
    if (opens.joinable()) opens.join();
    launch("nobody is late");
    barrier.arrive_and_wait();
    // A call that waits in vain.
    if (rank == 1) gate_of_call.hold(stream);
    OK(sum());
    if (rank != 1) stream.wait();
    barrier.arrive_and_wait();
    if (rank == 1) gate_of_call.open();
    stream.wait();
    launch("after a call in vain");
    EXPECT_NE(sum(), HEDDLE_OK);
    launch("after a failure");
  });
}

}  // namespace
}  // namespace heddle::test

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc != 2) return 2;
  setenv("FAKE_CUDA_DEVICES", "4", 1);
  setenv("HEDDLE_MEASURE", "0", 1);
  static const heddle::test::TestDriver cuda(argv[1]);
  heddle::test::driver = &cuda;
  return RUN_ALL_TESTS();
}
