// Collectives on streams of ranks on several nodes with several on each, whose GPUs share large vectors out: threads of one process, which nodes are made up for and
// which reach the others by TCP, on the double of CUDA's driver (its path is the argument). In the double a stream does nothing before somebody waits for it.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cfloat>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "../communicator/party.hpp"
#include "api/device_buffers.hpp"
#include "comm/stream_relay.hpp"
#include "cuda_streams.hpp"
#include "node_ranks_of_threads.hpp"

namespace {

using heddle::Code;
using heddle::Config;
using heddle::DType;
using heddle::Op;
using heddle::Status;
using heddle::StreamRelay;
using heddle::StreamShares;
using heddle::test::driver;
using heddle::test::kind_of;
using heddle::test::Memory;
using heddle::test::Node;
using heddle::test::Party;
using heddle::test::TestDriver;
using heddle::test::TestGraph;
using heddle::test::TestMemory;
using heddle::test::TestStream;

using Nodes = std::vector<std::uint64_t>;
constexpr std::size_t kLeast = StreamShares::kFrom / 4;  // elements

// Shares of 20 KiB for two lanes: vectors of many pieces, the last of which is short.
Config little(std::size_t scratch = std::size_t{144} << 10) {
  Config config = heddle::test::quiet();
  config.transports = "shm,tcp";
  config.device_bytes = scratch;
  return config;
}

template <typename T>
constexpr DType kType = std::is_same_v<T, float> ? DType::f32 : DType::i32;

template <typename T>
std::vector<T> values(std::size_t count, int rank, int step) {
  std::vector<T> all(count);
  for (std::size_t i = 0; i < count; ++i)
    all[i] = static_cast<T>(static_cast<double>(i % 10007 + 13 * static_cast<std::size_t>(step)) *
                            (1.37 + static_cast<double>(rank)));
  return all;
}
// Each node's in the order of its ranks, and then the nodes': for two nodes, and for integers, there is no other result.
template <typename T>
std::vector<T> sum_of(const Nodes& nodes, std::size_t count, int step) {
  std::vector<T> all(count);
  for (std::uint64_t node = 0; node < nodes.size(); ++node) {
    std::vector<T> here(count);
    for (std::size_t r = 0; r < nodes.size(); ++r) {
      if (nodes[r] != node) continue;
      const std::vector<T> one = values<T>(count, static_cast<int>(r), step);
      for (std::size_t i = 0; i < count; ++i)
        here[i] += one[i];
    }
    for (std::size_t i = 0; i < count; ++i)
      all[i] += here[i];
  }
  return all;
}

// A rank with its communicator.
class Seat {
 public:
  Seat(Party& party, int number, const Nodes& where, const Config& config, Node& everybody,
       std::barrier<>& barrier)
      : rank(number), nodes(where), all(everybody), together(barrier) {
    comm.gpu.configure({true, config.pinned_bytes});
    auto made = heddle::Communicator::create(party.bootstrap(number), config);
    EXPECT_TRUE(made.ok()) << made.status().message();
    comm.communicator = std::move(made).value();
  }
  StreamRelay& relay() { return *comm.communicator->stream_relay(); }
  // Makes a later call of a function fail, on whichever rank makes it.
  void fail(const char* name, int later = 0, CUresult error = CUDA_ERROR_ILLEGAL_ADDRESS) {
    all.counted(name, [&] {
      if (rank == 0) driver->fail_after(name, later, error);
    });
  }

  heddle_comm comm;
  const int rank;
  const Nodes& nodes;
  Node& all;
  std::barrier<>& together;
};

template <typename Body>
void on_nodes(const Nodes& nodes, const Config& config, const Body& body) {
  Party party(nodes);
  Node all(party.size());
  std::barrier together(party.size());
  heddle::test::run_ranks(party.size(), [&](heddle::test::Rank& me) {
    driver->set_current(driver->primary(0));
    Seat seat(party, me.rank, nodes, config, all, together);
    body(seat);
  });
}

// A program's step on one rank: work that makes the input, a collective, and work that takes the result and then overwrites both.
template <typename T>
class Step {
 public:
  Step(Seat& seat, int device, std::size_t count, int step)
      : stream(*driver, device),
        seat_(seat),
        count_(count),
        step_(step),
        made_(*driver, Memory::device, bytes(), device),
        spoiled_(*driver, Memory::device, bytes(), device),
        in_(*driver, kind_of(seat.rank, step), bytes(), device),
        out_(*driver, kind_of(seat.rank, 2 * step), bytes(), device),
        taken_(*driver, Memory::device, bytes(), device) {
    made_.put(values<T>(count, seat.rank, step).data(), bytes());
  }
  Status allreduce(bool in_place) const {
    const TestMemory& to = in_place ? in_ : out_;
    const std::uint64_t before = seat_.relay().shared();
    stream.copy(in_.data(), made_.data(), bytes());
    Status status = seat_.relay().allreduce_on(seat_.comm.gpu, stream.get(), in_.data(), to.data(), count_,
                                               kType<T>, Op::sum);
    take(to.data());
    exact_ = !std::is_floating_point_v<T> || seat_.relay().shared() > before;
    return status;
  }
  Status bcast(int root) const {
    stream.copy(in_.data(), made_.data(), bytes());
    Status status = seat_.relay().bcast_on(seat_.comm.gpu, stream.get(), in_.data(), bytes(), root);
    take(in_.data());
    return status;
  }
  void check(const Status& status, const std::vector<T>& wanted, bool exact) const {
    EXPECT_TRUE(status.ok()) << status.message();
    // One after the other: what a stream does not wait for has not been done by another rank's then.
    const int size = static_cast<int>(seat_.nodes.size());
    for (int i = 0; i < size; ++i) {
      if ((i + step_) % size == seat_.rank) stream.wait();
      seat_.together.arrive_and_wait();
    }
    std::vector<T> got(count_);
    taken_.get(got.data(), bytes());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      // The host's order may be another one: each addition of positive floats rounds by half an epsilon of what is less than the sum.
      const double most =
          exact ? 0 : double{FLT_EPSILON} * seat_.all.ranks() * static_cast<double>(wanted[i]);
      wrong += std::abs(static_cast<double>(got[i]) - static_cast<double>(wanted[i])) <= most ? 0 : 1;
    }
    EXPECT_EQ(wrong, 0U) << "rank " << seat_.rank << ", " << count_ << " elements, step " << step_;
  }
  void check_sum(const Status& status) const { check(status, sum_of<T>(seat_.nodes, count_, step_), exact_); }
  void check_bcast(const Status& status, int root) const {
    check(status, values<T>(count_, root, step_), true);
  }
  // A sum that everybody waits for at once.
  void works(bool in_place = false) const { check_sum(allreduce(in_place)); }
  std::size_t bytes() const { return count_ * sizeof(T); }

  const TestStream stream;

 private:
  void take(const void* result) const {
    stream.copy(taken_.data(), result, bytes());
    stream.copy(in_.data(), spoiled_.data(), bytes());
    stream.copy(out_.data(), spoiled_.data(), bytes());
  }

  Seat& seat_;
  const std::size_t count_;
  const int step_;
  const TestMemory made_;
  const TestMemory spoiled_;
  const TestMemory in_;
  const TestMemory out_;
  const TestMemory taken_;
  mutable bool exact_ = true;  // all know the bits of the last sum
};

// Alike, uneven with one lane, with two, in turns, of three nodes.
const std::vector<Nodes>& shapes() {
  static const std::vector<Nodes> all = {
      {0, 0, 1, 1}, {0, 0, 0, 1}, {0, 0, 0, 1, 1}, {0, 1, 0, 1}, {0, 1, 1, 2, 2, 2}};
  return all;
}

template <typename T>
void check_steps(const Nodes& nodes, const Config& config) {
  on_nodes(nodes, config, [&](Seat& seat) {
    int number = 0;
    std::uint64_t shared = 0;
    for (const std::size_t count : {kLeast - 1, kLeast, kLeast + 40'003}) {
      const Step<T> step(seat, seat.rank % 2, count, ++number);
      const std::uint64_t more = count >= kLeast ? 1 : 0;
      for (const bool in_place : {false, true}) {
        step.works(in_place);
        EXPECT_EQ(seat.relay().shared(), shared += more);
      }
      for (int root = 0; root < static_cast<int>(nodes.size()); ++root) {
        step.check_bcast(step.bcast(root), root);
        EXPECT_EQ(seat.relay().shared(), shared += more);
      }
    }
  });
}

// In many pieces, and in a few by way of much memory.
TEST(StreamNodes, Steps) {
  for (const Nodes& nodes : shapes()) {
    const bool two = *std::max_element(nodes.begin(), nodes.end()) == 1;
    two ? check_steps<float>(nodes, little()) : check_steps<std::int32_t>(nodes, little());
  }
  check_steps<float>({0, 0, 1, 1}, little(std::size_t{8} << 20));
}

// What crosses the bus: of a long vector once a node, of a short one once a rank.
TEST(StreamNodes, Traffic) {
  for (const Nodes& nodes : {Nodes{0, 0, 1, 1}, Nodes{0, 0, 0, 1}}) {
    on_nodes(nodes, little(), [&](Seat& seat) {
      const Step<std::int32_t> first(seat, 0, 1, 0);
      first.works();
      const auto moved = [&](const char* name, const std::function<void()>& call) {
        return seat.all.copied(name, call);
      };
      for (const std::size_t count : {kLeast + 7, kLeast - 7}) {
        const bool shared = count >= kLeast;
        const Step<std::int32_t> step(seat, 0, count, 1);
        for (const char* name : {"cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync"})
          EXPECT_EQ(moved(name, [&] { step.works(); }), step.bytes() * (shared ? 2 : 4)) << name;
        EXPECT_EQ(moved("cuMemcpyDtoHAsync", [&] { step.check_bcast(step.bcast(1), 1); }), step.bytes());
        EXPECT_EQ(moved("cuMemcpyHtoDAsync", [&] { step.check_bcast(step.bcast(1), 1); }),
                  step.bytes() * (shared ? 1 : 3));
      }
    });
  }
}

// Long and short ones by turns, many before anybody waits, on several streams, beside others on the same communicator; nothing waits for a GPU.
TEST(StreamNodes, SeveralStreams) {
  const Nodes nodes = {0, 0, 1, 1, 1};
  on_nodes(nodes, little(), [&](Seat& seat) {
    std::vector<std::unique_ptr<Step<std::int32_t>>> steps;
    for (int i = 0; i < 8; ++i)
      steps.push_back(std::make_unique<Step<std::int32_t>>(
          seat, 0, i % 3 == 2 ? std::size_t{5000} : kLeast + static_cast<std::size_t>(100 * i), i));
    std::vector<Status> said;
    said.push_back(steps[0]->allreduce(true));
    const int waits = seat.all.counted("cuStreamSynchronize", [&] {
      for (int i = 1; i < 8; ++i) {
        const Step<std::int32_t>& step = *steps[static_cast<std::size_t>(i)];
        said.push_back(i % 2 == 0 ? step.allreduce(i % 4 == 0) : step.bcast(i % 5));
        std::int64_t number = seat.rank;
        EXPECT_TRUE(seat.comm.communicator->allreduce(&number, &number, 1, DType::i64, Op::max).ok());
        EXPECT_EQ(number, 4);
      }
    });
    EXPECT_EQ(waits, 0);
    EXPECT_EQ(seat.relay().shared(), 6U);
    for (int i = 7; i >= 0; --i) {
      const auto at = static_cast<std::size_t>(i);
      i % 2 == 0 ? steps[at]->check_sum(said[at]) : steps[at]->check_bcast(said[at], i % 5);
    }
  });
}

// Blocking sums of GPU memory have links of their own.
TEST(StreamNodes, BesideBlockingSums) {
  const Nodes nodes = {0, 0, 1, 1};
  on_nodes(nodes, little(), [&](Seat& seat) {
    const TestMemory vector(*driver, Memory::device, kLeast * 4, 0);
    for (int i = 0; i < 11; ++i) {
      const Step<float> step(seat, 0, kLeast + 17, i);
      const Status given = step.allreduce(i % 2 == 0);
      const std::vector<std::int32_t> ones(kLeast, 1);
      vector.put(ones.data(), kLeast * 4);
      const Status status = heddle::edge::allreduce_anywhere(
          seat.comm, {vector.data(), vector.data(), kLeast, DType::i32, Op::sum});
      EXPECT_TRUE(status.ok()) << status.message();
      std::int32_t last = 0;
      vector.get(&last, 4, (kLeast - 1) * 4);
      EXPECT_EQ(last, 4);
      step.check_sum(given);
    }
    EXPECT_EQ(seat.relay().shared(), 11U);
  });
}

// The communicator's end waits for what streams were given.
TEST(StreamNodes, EndWaits) {
  const Nodes nodes = {0, 0, 1};
  std::vector<std::unique_ptr<TestMemory>> sums(3);
  std::vector<std::unique_ptr<TestStream>> streams(3);
  on_nodes(nodes, little(), [&](Seat& seat) {
    const auto at = static_cast<std::size_t>(seat.rank);
    streams[at] = std::make_unique<TestStream>(*driver, 0);
    sums[at] = std::make_unique<TestMemory>(*driver, Memory::device, kLeast * 4);
    sums[at]->put(values<std::int32_t>(kLeast, seat.rank, 1).data(), kLeast * 4);
    const Status status = seat.relay().allreduce_on(seat.comm.gpu, streams[at]->get(), sums[at]->data(),
                                                    sums[at]->data(), kLeast, DType::i32, Op::sum);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(seat.relay().shared(), 1U);
  });
  driver->set_current(driver->primary(0));
  for (const auto& sum : sums) {
    std::vector<std::int32_t> got(kLeast);
    sum->get(got.data(), kLeast * 4);
    EXPECT_EQ(got, sum_of<std::int32_t>(nodes, kLeast, 1));
  }
}

// Types without a kernel, and a kernel that one rank lacks: the host does it, and the next is shared out again.
TEST(StreamNodes, NoKernel) {
  on_nodes({0, 0, 1, 1}, little(), [](Seat& seat) {
    const Step<float> step(seat, 0, kLeast, 1);
    step.works();
    const std::size_t count = StreamShares::kFrom / sizeof(long double);
    const TestMemory words(*driver, Memory::device, StreamShares::kFrom);
    const std::vector<long double> mine(count, 1.5L + static_cast<long double>(seat.rank));
    words.put(mine.data(), StreamShares::kFrom);
    EXPECT_TRUE(seat.relay()
                    .allreduce_on(seat.comm.gpu, step.stream.get(), words.data(), words.data(), count,
                                  DType::f80, Op::sum)
                    .ok());
    step.stream.wait();
    long double last = 0;
    words.get(&last, sizeof last, StreamShares::kFrom - sizeof last);
    EXPECT_EQ(last, 12.0L);
    EXPECT_EQ(seat.relay().shared(), 1U);

    const Step<std::int32_t> other(seat, 0, kLeast, 2);
    seat.fail("cuLibraryGetKernel", 0, CUDA_ERROR_OUT_OF_MEMORY);
    other.works();
    EXPECT_EQ(seat.relay().shared(), 1U);
    step.works();
    EXPECT_EQ(seat.relay().shared(), 2U);
  });
}

// With one rank on each node there is nothing to share out; with too little memory, or where nobody reaches the others', it is not done. The host does it all.
TEST(StreamNodes, NotShared) {
  const auto by_the_host = [](Seat& seat) {
    const Step<float> step(seat, 0, kLeast, 1);
    step.works();
    EXPECT_EQ(seat.relay().shared(), 0U);
  };
  on_nodes({0, 1}, little(), by_the_host);
  on_nodes({0, 0, 1}, little(0), by_the_host);
  on_nodes({0, 0, 1}, little(1000), by_the_host);
  // Of the first in a node, or its last.
  for (const char* name : {"cuMemAlloc", "cuIpcGetMemHandle", "cuEventCreate"}) {
    for (const int later : {0, 1}) {
      on_nodes({0, 0, 1, 1}, little(), [&](Seat& seat) {
        const Step<float> step(seat, 0, kLeast, 1);
        seat.fail(name, later);
        step.works();
        EXPECT_EQ(seat.relay().shared(), 0U) << name;
        EXPECT_TRUE(step.bcast(3).ok());
        step.stream.wait();
      });
    }
  }
  on_nodes({0, 0, 1}, little(), [](Seat& seat) {
    const Step<float> step(seat, seat.rank % 2, kLeast, 1);
    seat.fail("cuCtxEnablePeerAccess", 0, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    step.works();
    EXPECT_EQ(seat.relay().shared(), 0U);
  });
}

// The smallest share of all ranks' slots counts.
TEST(StreamNodes, LittlePinnedMemory) {
  const Nodes nodes = {0, 0, 1, 1};
  Config config = little(std::size_t{8} << 20);
  config.pinned_bytes = std::size_t{512} << 10;
  on_nodes(nodes, config, [&](Seat& seat) {
    const Step<float> step(seat, 0, kLeast + 999, 1);
    step.works();
    step.check_bcast(step.bcast(2), 2);
    EXPECT_EQ(seat.relay().shared(), 2U);
  });
}

// What cannot be is refused on all ranks, or fails on all, before any stream has more than copies into scratch; and what can goes on.
TEST(StreamNodes, Refused) {
  on_nodes({0, 0, 1, 1}, little(), [](Seat& seat) {
    const Step<float> good(seat, 0, kLeast, 3);
    good.works();
    const TestMemory words(*driver, Memory::device, kLeast * 4);
    std::vector<float> host(kLeast);
    const auto sum = [&](void* buffer) {
      return seat.relay().allreduce_on(seat.comm.gpu, good.stream.get(), buffer, buffer, kLeast, DType::f32,
                                       Op::sum);
    };
    const bool odd = seat.rank == 1;
    Status said = sum(odd ? static_cast<void*>(host.data()) : words.data());
    EXPECT_EQ(said.code(), Code::unsupported);
    EXPECT_NE(said.message().find(odd ? "is not in the GPU context" : "rank 1 could not do its part"),
              std::string::npos)
        << said.message();
    good.works();
    TestGraph graph(*driver, good.stream);
    if (odd) graph.begin();
    said = sum(words.data());
    if (odd) (void)graph.end();
    EXPECT_EQ(said.code(), Code::unsupported);
    EXPECT_NE(said.message().find(odd ? "ranks on one node alone" : "rank 1 could not do its part"),
              std::string::npos)
        << said.message();
    good.works(true);
    // The first copies into scratch; the event after them; looking at the stream.
    for (const char* name : {"cuMemcpyDtoDAsync", "cuStreamGetCtx", "cuStreamIsCapturing"}) {
      seat.fail(name);
      said = sum(words.data());
      EXPECT_TRUE(said.code() == Code::system || said.code() == Code::peer_failed) << said.message();
      good.works();
    }
    EXPECT_EQ(seat.relay().shared(), 6U);
  });
}

// A stream that cannot be given its work: its node's ranks say so, no stream waits, all are told in the next call, and the one after that begins anew.
TEST(StreamNodes, OneIsLost) {
  const Nodes nodes = {0, 0, 1, 1};
  std::atomic<int> own = 0;
  std::atomic<int> heard = 0;
  int failures = 0;
  for (const bool sums : {true, false}) {
    for (const char* name : {"cuMemcpyDtoDAsync", "cuLaunchKernel", "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync",
                             "cuStreamBatchMemOp", "cuStreamWaitEvent"}) {
      if (!sums && std::string(name) == "cuLaunchKernel") continue;
      for (const int later : {11, 25}) {
        ++failures;
        on_nodes(nodes, little(), [&](Seat& seat) {
          const Step<float> step(seat, seat.rank % 2, kLeast + 3, 3);
          step.works();
          const TestMemory words(*driver, Memory::device, step.bytes(), seat.rank % 2);
          const TestStream stream(*driver, seat.rank % 2);
          const auto call = [&] {
            return sums ? seat.relay().allreduce_on(seat.comm.gpu, stream.get(), words.data(), words.data(),
                                                    kLeast, DType::f32, Op::sum)
                        : seat.relay().bcast_on(seat.comm.gpu, stream.get(), words.data(), step.bytes(), 1);
          };
          Status first;
          seat.fail(name, later);
          seat.all.counted(name, [&] { first = call(); });
          own += first.code() == Code::system ? 1 : 0;
          heard += first.code() == Code::peer_failed ? 1 : 0;
          stream.wait();
          const Status second = call();
          EXPECT_FALSE(second.ok()) << name;
          const char* const wanted =
              first.ok() ? "could not do its part" : "an earlier collective on a stream failed";
          EXPECT_NE(second.message().find(wanted), std::string::npos) << second.message();
          const std::uint64_t shared = seat.relay().shared();
          step.works();
          EXPECT_EQ(seat.relay().shared(), shared + 1);
        });
      }
    }
  }
  EXPECT_EQ(own, failures);
  EXPECT_EQ(heard, failures);
}

// The communicator of the rank that failed may end at once: its scratch stays until the others of its node have done what their streams were given of it.
TEST(StreamNodes, EndAfterAFailure) {
  // Of ranks with a share and without; the thread of one with a share ends with those of the other nodes.
  for (const int later : {21, 22, 23, 25, 28}) {
    on_nodes({0, 0, 0, 1}, little(), [&](Seat& seat) {
      const Step<float> step(seat, 0, kLeast, 3);
      step.works();
      const TestMemory words(*driver, Memory::device, step.bytes());
      seat.fail("cuMemcpyDtoDAsync", later);
      const Status status = seat.relay().allreduce_on(seat.comm.gpu, step.stream.get(), words.data(),
                                                      words.data(), kLeast, DType::f32, Op::sum);
      seat.together.arrive_and_wait();
      if (status.code() != Code::system) std::this_thread::sleep_for(std::chrono::milliseconds(100));
      step.stream.wait();
    });
  }
}

// What a stream waits for until open().
class Gate {
 public:
  Gate() {
    driver->set_current(driver->primary(0));
    driver->call<PFN_cuMemHostRegister_v6050>("cuMemHostRegister_v2", &words_, sizeof words_,
                                              unsigned{CU_MEMHOSTREGISTER_DEVICEMAP});
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate() {
    driver->set_current(driver->primary(0));
    driver->call<PFN_cuMemHostUnregister_v4000>("cuMemHostUnregister", &words_);
  }
  void hold(const TestStream& stream) {
    CUstreamBatchMemOpParams wait = {};
    wait.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    wait.waitValue.address = reinterpret_cast<CUdeviceptr>(&words_);
    wait.waitValue.value = 1;
    wait.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
    driver->call<PFN_cuStreamBatchMemOp_v11070>("cuStreamBatchMemOp_v2", stream.get(), 1U, &wait, 0U);
  }
  void open() { std::atomic_ref(words_.first).store(1); }

 private:
  struct alignas(4096) {
    std::uint32_t first = 0;
  } words_;
};

// A node with a rank whose stream does not come to its part in time: the other node's streams go on, and the next call says who was missing.
TEST(StreamNodes, OneIsLate) {
  const Nodes nodes = {0, 0, 1, 1};
  Config config = little();
  config.timeout = std::chrono::milliseconds(300);
  Gate gate;
  on_nodes(nodes, config, [&](Seat& seat) {
    const Step<float> step(seat, 0, kLeast, 1);
    const Step<float> again(seat, 0, kLeast, 2);
    const bool late = seat.nodes[static_cast<std::size_t>(seat.rank)] == 1;
    if (seat.rank == 2) gate.hold(step.stream);
    EXPECT_TRUE(step.allreduce(true).ok());
    if (!late) step.stream.wait();
    seat.together.arrive_and_wait();
    if (seat.rank == 2) gate.open();
    const Status said = again.allreduce(false);
    EXPECT_FALSE(said.ok());
    if (!late) {
      EXPECT_NE(said.message().find("an earlier collective on a stream failed: rank"), std::string::npos)
          << said.message();
    }
    again.works();
    EXPECT_EQ(seat.relay().shared(), 2U);
    seat.together.arrive_and_wait();
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
