// What is left of collectives on streams over two nodes (stream_relay.hpp) when a rank of this node is gone,
// or has lost its GPU: streams of this process wait for its events, and nobody waits for them.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include "device/stream_relay.hpp"
#include "fault_ranks.hpp"

namespace heddle::test {
namespace {

constexpr int kRanks = 4;  // the last one is alone on the second node
constexpr int kFaulty = 1;
constexpr std::size_t kCount = StreamShares::kFrom / sizeof(float) + 5;

// What the processes share.
struct Seen {
  std::atomic<int> is_gone = 0;
};

// That rank's process is told to be gone, and to itself the others are. It stays, so that nothing of the
// host's waits for it.
class NodeWithoutOne final : public Meeting {
 public:
  NodeWithoutOne(std::unique_ptr<Meeting> node, const Seen& seen) : node_(std::move(node)), seen_(seen) {}
  int rank() const override { return node_->rank(); }
  int size() const override { return node_->size(); }
  int number_of(int rank) const override { return node_->number_of(rank); }
  Status largest(std::span<std::uint64_t> words) override { return node_->largest(words); }
  void tell(std::uint64_t word) override { node_->tell(word); }
  std::uint64_t told(int rank) const override { return node_->told(rank); }
  bool is_gone(int rank) const override {
    return seen_.is_gone == 1 && (rank == kFaulty || this->rank() == kFaulty);
  }
  std::uint64_t calls() const override { return node_->calls(); }
  bool bcast_met() const override { return node_->bcast_met(); }

 private:
  const std::unique_ptr<Meeting> node_;
  const Seen& seen_;
};

// One rank, its relay, and a stream that has a sum to do which it cannot end before the faulty rank's does
// its part.
class Seat {
 public:
  Seat(NodeRank& rank, const Seen& seen)
      : rank_(rank),
        log_(LogLevel::warn, rank.rank()),
        device_(rank.rank() % 3),
        node_(rank.made_up_node(), seen),
        ranks_(rank.collectives(0)),
        gate_(rank.driver()),
        stream_(rank.driver(), device_),
        memory_(rank.driver(), Memory::device, kCount * sizeof(float), device_),
        relay_(std::make_unique<StreamRelay>(
            *ranks_, [this]() -> Result<std::unique_ptr<HostCollectives>> { return rank_.collectives(1); },
            log_, std::make_unique<StreamShares>(node_, 1, std::size_t{1} << 20, log_))) {}
  Status sum() {
    void* const at = memory_.data();
    return relay_->allreduce_on(rank_.gpu(), stream_.get(), at, at, kCount, DType::f32, Op::sum);
  }
  // Two sums, the second of which no GPU of the node comes to the end of, where one is held.
  bool begin() {
    const Status first = sum();
    stream_.wait();
    rank_.barrier();
    if (rank_.rank() == kFaulty) gate_.hold(stream_);
    const Status second = sum();
    return expect(first.ok() && second.ok() && relay_->shared() == 2, rank_,
                  "the first sums: " + first.message() + second.message());
  }
  void end() { relay_.reset(); }
  void open_gate() { gate_.open(); }
  // What it was given and has not done is never done, where CUDA fails.
  void give_up() const {
    static_cast<void>(
        rank_.driver().find<PFN_cuStreamSynchronize_v2000>("cuStreamSynchronize")(stream_.get()));
  }
  // The stream goes on as far as it can.
  void look() const {
    static_cast<void>(rank_.driver().find<PFN_cuStreamQuery_v2000>("cuStreamQuery")(stream_.get()));
  }

 private:
  NodeRank& rank_;
  const Log log_;
  const int device_;
  NodeWithoutOne node_;
  const std::unique_ptr<HostCollectives> ranks_;
  TestGate gate_;
  const TestStream stream_;
  const TestMemory memory_;
  std::unique_ptr<StreamRelay> relay_;
};

// Without what a test's own stream and memory would wait for.
[[noreturn]] void leave(bool right) {
  std::fflush(nullptr);
  _exit(right ? 0 : 1);
}

template <typename Body>
void on_two_nodes(const Body& body) {
  void* const at = mmap(nullptr, sizeof(Seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(at, MAP_FAILED);
  auto& seen = *new (at) Seen;
  EXPECT_TRUE(on_processes(library, kRanks, DeviceLimits{0}, [&](NodeRank& rank) -> bool {
    alarm(kLongest);
    auto& seat = *new Seat(rank, seen);
    const bool right = seat.begin();
    if (!right) leave(false);
    body(rank, seat, seen);
    leave(true);
  }));
  munmap(at, sizeof(Seen));
}

// Before the end, as of heddle_comm_destroy. The streams that wait may go on one day after all, and find what
// they use in its place.
TEST(GpuRelayFault, ARankThatIsGone) {
  on_two_nodes([](NodeRank& rank, Seat& seat, Seen& seen) {
    rank.barrier();
    seen.is_gone = 1;
    if (rank.rank() != kFaulty) seat.end();
    rank.barrier();
    if (rank.rank() == kFaulty) seat.open_gate();
    for (int look = 0; look < 200; ++look) {
      seat.look();
      usleep(1000);
    }
    rank.barrier();
  });
}

// When all begin anew, since one stream was not given its part of a call.
TEST(GpuRelayFault, BeforeAllBeginAnew) {
  on_two_nodes([](NodeRank& rank, Seat& seat, Seen& seen) {
    const bool alone = rank.rank() == kRanks - 1;
    rank.barrier();
    seen.is_gone = 1;
    fail_calls(rank, alone, {"cuMemcpyDtoHAsync"});
    const Status third = seat.sum();
    if (!expect(third.ok() != alone, rank, "the third sum: " + third.message())) leave(false);
    fail_calls(rank, false, {"cuMemcpyDtoHAsync"});
    const Status next = seat.sum();
    if (!expect(!next.ok(), rank, "a sum after one that was lost")) leave(false);
    rank.barrier();
    seat.end();
  });
}

// As after an illegal access of the program's: what its streams were given is never done, and its thread
// would wait for that. The next call says so to all, whose streams go on.
TEST(GpuRelayFault, AGpuThatHasFailed) {
  on_two_nodes([](NodeRank& rank, Seat& seat, Seen&) {
    const bool alone = rank.rank() == kRanks - 1;
    if (alone) {
      fail_calls(rank, true,
                 {"cuStreamSynchronize", "cuStreamQuery", "cuEventSynchronize", "cuEventQuery",
                  "cuEventRecord", "cuStreamWaitEvent", "cuStreamBatchMemOp", "cuLaunchKernel",
                  "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "cuStreamGetCaptureInfo"});
      seat.give_up();
    }
    rank.barrier();
    if (rank.rank() == kFaulty) seat.open_gate();
    const Status third = seat.sum();
    if (!expect(!third.ok(), rank, "a sum with a GPU that has failed")) leave(false);
    if (!alone) seat.end();
    rank.barrier();
    if (alone) seat.end();
  });
}

}  // namespace
}  // namespace heddle::test
