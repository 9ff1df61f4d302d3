// Of streams over several nodes (stream_nodes_test.cpp): where nothing is shared out, and what fails.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "stream_nodes.hpp"

namespace heddle::test {
namespace {

// With one rank on each node there is nothing to share out; with too little memory, or where nobody reaches
// the others', it is not done. The host does it all.
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
  for (const char* name : {"cuMemAlloc", "cuEventCreate"}) {
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

// What cannot be is refused on all ranks, or fails on all, before any stream has more than copies into
// scratch; and what can goes on.
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
    EXPECT_NE(said.message().find("on all ranks or on none"), std::string::npos) << said.message();
    good.works(true);
    // The first copies into scratch; the event after them; looking at the stream; its beginning.
    for (const char* name :
         {"cuMemcpyDtoDAsync", "cuStreamGetCtx", "cuStreamIsCapturing", "cuStreamBatchMemOp"}) {
      seat.fail(name);
      said = sum(words.data());
      EXPECT_TRUE(said.code() == Code::system || said.code() == Code::peer_failed) << said.message();
      good.works();
    }
    EXPECT_EQ(seat.relay().shared(), 7U);
  });
}

// A stream that cannot be given its work: its node's ranks say so, no stream waits, all are told in the next
// call, and the one after that begins anew.
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

// The communicator of the rank that failed may end at once: its scratch stays until the others of its node
// have done what their streams were given of it.
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

// A node with a rank whose stream does not come to its part in time: the other node's streams go on, and the
// next call says who was missing.
TEST(StreamNodes, OneIsLate) {
  const Nodes nodes = {0, 0, 1, 1};
  Config config = little();
  config.timeout = std::chrono::milliseconds(300);
  TestGate gate(*driver);
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
}  // namespace heddle::test
