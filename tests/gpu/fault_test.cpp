// What the others see when a rank's GPU fails, as after an illegal access of the program's: ranks that are
// processes and have a device each, on the double of CUDA's driver (its path is the argument).
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "cuda_streams.hpp"
#include "fault_ranks.hpp"

namespace heddle::test {
namespace {

constexpr int kRanks = 3;
constexpr int kFaulty = 1;
constexpr std::size_t kCount = 2;  // on the double each thread of a kernel that waits in vain takes its time

// From now on whoever waits for this process's GPU is told of an illegal access; or no more.
void fail_waits(const NodeRank& rank, bool fails) {
  fail_calls(rank, fails, {"cuStreamQuery", "cuStreamSynchronize", "cuEventQuery", "cuEventSynchronize"});
}

// The faulty rank says why, the others whose GPU it was.
bool expect_failure(const NodeRank& rank, const Status& status) {
  const bool right = rank.rank() == kFaulty
                         ? status.code() == Code::system
                         : status.code() == Code::peer_failed &&
                               status.message().find("rank 1 could not do its part") != std::string::npos;
  return expect(right, rank, "failed as: " + status.message());
}

// In the course of a blocking call.
TEST(GpuFault, BlockingSum) {
  EXPECT_TRUE(on_processes(library, kRanks, kExchanging, [](NodeRank& rank) {
    alarm(kLongest);
    const TestWords words(rank.driver(), rank.rank(), kCount, 0);
    auto* const floats = reinterpret_cast<float*>(words.at());
    if (!rank.begin(floats) || !sum_is_right(rank, words)) return false;
    const int before = rank.driver().calls("heddle_exchange");
    if (rank.rank() == kFaulty) fail_waits(rank, true);
    const Result<bool> served =
        rank.path().allreduce(words.at(), words.at(), words.count(), DType::i32, Op::sum);
    fail_waits(rank, false);
    if (!expect(rank.driver().calls("heddle_exchange") > before, rank, "no kernel was given")) return false;
    if (!expect_failure(rank, served.status())) return false;
    // The ranks begin anew, after twice as many calls.
    const Status staged = rank.staged_sum(floats, floats, 1);
    return expect(staged.ok() && !rank.path().on(), rank, "did not begin anew") &&
           (rank.begin(floats) || rank.begin(floats)) && sum_is_right(rank, words);
  }));
}

// ---- Behind a call on a stream, which the faulty rank's GPU does not come to

// What the ranks do next; false: it is wrong.
using Next = bool (*)(NodeRank& rank, const TestStream& stream, const TestWords& words);

// What the stream was given is not done any more.
void break_gpu(const NodeRank& rank, const TestStream& stream) {
  fail_waits(rank, true);
  fail_calls(rank, true, {"cuStreamWaitEvent", "cuEventRecord"});
  rank.driver().find<PFN_cuStreamSynchronize_v2000>("cuStreamSynchronize")(stream.get());
}

bool after_a_fault(const DeviceLimits& limits, Next next) {
  return on_processes(library, kRanks, limits, [next](NodeRank& rank) {
    alarm(kLongest);
    const TestStream stream(rank.driver(), rank.rank());
    const TestWords words(rank.driver(), rank.rank(), kCount, 1);
    if (!expect(sum_on(rank, stream, words).ok(), rank, "the first call")) return false;
    stream.wait();
    if (!expect(words.value() == kRanks, rank, "the first sum")) return false;
    if (!expect(sum_on(rank, stream, words).ok(), rank, "the second call")) return false;
    if (rank.rank() == kFaulty) break_gpu(rank, stream);
    return next(rank, stream, words);
  });
}

TEST(GpuFault, BeforeACallOnAStream) {
  EXPECT_TRUE(
      after_a_fault(kExchanging, [](NodeRank& rank, const TestStream& stream, const TestWords& words) {
        const bool right = expect_failure(rank, sum_on(rank, stream, words));
        // Nothing uses the buffers any more.
        if (rank.rank() != kFaulty) stream.wait();
        return right;
      }));
}

TEST(GpuFault, BeforeABlockingCall) {
  EXPECT_TRUE(after_a_fault(kExchanging, [](NodeRank& rank, const TestStream&, const TestWords&) {
    const TestWords long_one(rank.driver(), rank.rank(), 50'000, 1);
    const Status status =
        rank.path().allreduce(long_one.at(), long_one.at(), long_one.count(), DType::i32, Op::sum).status();
    return expect_failure(rank, status);
  }));
}

// Memory that is not there keeps the faulty rank from looking at its GPU by itself.
TEST(GpuFault, BeforeABlockingCallOfFreedMemory) {
  EXPECT_TRUE(after_a_fault(kExchanging, [](NodeRank& rank, const TestStream&, const TestWords& words) {
    TestMemory freed(rank.driver(), Memory::device, kCount * 4, rank.rank());
    auto* const lost = rank.rank() == kFaulty ? static_cast<std::int32_t*>(freed.lose()) : words.at();
    const Status status = rank.path().allreduce(lost, lost, kCount, DType::i32, Op::sum).status();
    return expect(status.code() == (rank.rank() == kFaulty ? Code::invalid_argument : Code::peer_failed),
                  rank, "failed as: " + status.message());
  }));
}

TEST(GpuFault, BeforeTheEnd) {
  EXPECT_TRUE(after_a_fault(kExchanging, [](NodeRank& rank, const TestStream&, const TestWords&) {
    rank.path().let_go();
    return true;
  }));
}

// As a launch of a graph does, without a deadline.
TEST(GpuFault, BehindAGraph) {
  DeviceLimits limits = kExchanging;
  limits.links.patience = std::chrono::milliseconds(1);
  EXPECT_TRUE(on_processes(library, kRanks, limits, [](NodeRank& rank) {
    alarm(kLongest);
    const TestStream stream(rank.driver(), rank.rank());
    const TestWords words(rank.driver(), rank.rank(), kCount, 1);
    Status status = sum_on(rank, stream, words);
    if (!expect(status.ok(), rank, "the first call")) return false;
    TestGraph graph(rank.driver(), stream);
    graph.begin();
    status = sum_on(rank, stream, words);
    if (!expect(graph.end() == CUDA_SUCCESS && status.ok(), rank, "the capture")) return false;
    graph.launch(stream);
    if (rank.rank() == kFaulty) break_gpu(rank, stream);
    const bool right = expect_failure(rank, sum_on(rank, stream, words));
    if (rank.rank() != kFaulty) stream.wait();
    rank.path().let_go();
    return right;
  }));
}

// Streams that wait for events cannot be called back. The host can, and so can the end.
bool ends_beside_a_stuck_stream(NodeRank& rank, bool right) {
  // Each by itself.
  if (rank.rank() == 0) rank.path().let_go();
  rank.barrier();
  if (rank.rank() != 0) rank.path().let_go();
  rank.barrier();
  std::fflush(nullptr);
  _exit(right ? 0 : 1);  // the test's own stream would wait
}

// What sparse sums have on the GPU is not freed then: that would wait for the stream.
TEST(GpuFault, WithEventsAloneAfterASparseSum) {
  EXPECT_TRUE(on_processes(library, kRanks, DeviceLimits{kExchanging.scratch}, [](NodeRank& rank) {
    alarm(kLongest);
    const TestStream stream(rank.driver(), rank.rank());
    const TestWords words(rank.driver(), rank.rank(), kCount, 1);
    if (!expect(sum_on(rank, stream, words).ok(), rank, "the first call")) return false;
    stream.wait();
    auto* const floats = reinterpret_cast<float*>(words.at());
    DeviceTraffic traffic;
    const Result<bool> served = rank.path().largest_sum({floats, floats, kCount, 1, nullptr}, 1, &traffic);
    if (!expect(served.ok() && served.value(), rank, "no sparse sum")) return false;
    if (!expect(sum_on(rank, stream, words).ok(), rank, "the second call")) return false;
    if (rank.rank() == kFaulty) break_gpu(rank, stream);
    const bool right = expect_failure(rank, sum_on(rank, stream, words));
    return ends_beside_a_stuck_stream(rank, right);
  }));
}

// Nor does what a longer one needs replace it.
TEST(GpuFault, WithEventsAloneBeforeALongerSparseSum) {
  EXPECT_TRUE(on_processes(library, kRanks, DeviceLimits{kExchanging.scratch}, [](NodeRank& rank) {
    alarm(kLongest);
    const TestStream stream(rank.driver(), rank.rank());
    const TestWords words(rank.driver(), rank.rank(), 5000, 1);
    if (!expect(sum_on(rank, stream, words).ok(), rank, "the first call")) return false;
    stream.wait();
    auto* const floats = reinterpret_cast<float*>(words.at());
    const auto sparse_sum = [&](std::size_t n) {
      DeviceTraffic traffic;
      return rank.path().largest_sum({floats, floats, n, n / 2, nullptr}, n, &traffic);
    };
    const Result<bool> served = sparse_sum(10);
    if (!expect(served.ok() && served.value(), rank, "no sparse sum")) return false;
    if (!expect(sum_on(rank, stream, words).ok(), rank, "the second call")) return false;
    if (rank.rank() == kFaulty) break_gpu(rank, stream);
    const Status status = sparse_sum(5000).status();
    const bool right = expect(!status.ok(), rank, "a sparse sum behind a fault");
    return ends_beside_a_stuck_stream(rank, right);
  }));
}

TEST(GpuFault, WithEventsAlone) {
  EXPECT_TRUE(after_a_fault(DeviceLimits{kExchanging.scratch},
                            [](NodeRank& rank, const TestStream& stream, const TestWords& words) {
                              const bool right = expect_failure(rank, sum_on(rank, stream, words));
                              return ends_beside_a_stuck_stream(rank, right);
                            }));
}

// What a blocking call gives to the GPU comes after the stream, so it must not be waited for.
TEST(GpuFault, WithEventsAloneBeforeABlockingCall) {
  for (const std::size_t count : {kCount, std::size_t{50'000}}) {
    static std::size_t counted = 0;
    counted = count;
    EXPECT_TRUE(after_a_fault(
        DeviceLimits{kExchanging.scratch}, [](NodeRank& rank, const TestStream&, const TestWords&) {
          const TestWords other(rank.driver(), rank.rank(), counted, 1);
          const Status status =
              rank.path().allreduce(other.at(), other.at(), other.count(), DType::i32, Op::sum).status();
          const bool right =
              rank.rank() == kFaulty
                  ? expect_failure(rank, status)
                  : expect(status.code() == Code::peer_failed &&
                               status.message().find("rank 1 could not do its part of an earlier") !=
                                   std::string::npos,
                           rank, "failed as: " + status.message());
          return ends_beside_a_stuck_stream(rank, right);
        }));
  }
}

}  // namespace
}  // namespace heddle::test

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc != 2) return 2;
  setenv("FAKE_CUDA_DEVICES", "3", 1);
  heddle::test::library = argv[1];
  return RUN_ALL_TESTS();
}
