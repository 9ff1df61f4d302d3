// What is found out when ranks' GPUs are set up for each other: memory that CUDA lets them reach and that
// they do not, and events that they cannot share.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "fault_ranks.hpp"

namespace heddle::test {
namespace {

constexpr int kRanks = 3;
constexpr int kCalls = 12;  // more than it takes until the GPUs would serve them

// A variable of the double's, for the processes that are made meanwhile.
class Setting {
 public:
  explicit Setting(const char* name) : name_(name) { setenv(name, "1", 1); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;
  ~Setting() { unsetenv(name_); }

 private:
  const char* const name_;
};

// Calls go on by images, with the right results, and nobody waits for ever. What the ranks log.
std::string go_by_images(const DeviceLimits& limits) {
  ::testing::internal::CaptureStderr();
  const bool right = on_processes(library, kRanks, limits, [](NodeRank& rank) {
    alarm(kLongest);
    const TestMemory memory(rank.driver(), Memory::device, sizeof(float), rank.rank());
    for (int call = 0; call < kCalls; ++call) {
      auto value = static_cast<float>(rank.rank() + call);
      memory.put(&value, sizeof value);
      const Status status = rank.staged_sum(memory.as<float>(), memory.as<float>(), 1);
      memory.get(&value, sizeof value);
      const bool is_right = status.ok() && value == static_cast<float>(3 + kRanks * call);
      if (!expect(is_right, rank, "a sum by images is wrong: " + status.message())) return false;
    }
    return expect(!rank.path().on(), rank, "the GPUs serve calls");
  });
  std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(right) << said;
  return said;
}

std::size_t count(const std::string& said, const std::string& what) {
  std::size_t found = 0;
  for (std::size_t at = said.find(what); at != std::string::npos; at = said.find(what, at + 1))
    ++found;
  return found;
}

TEST(GpuReach, WritesThatAreLost) {
  const Setting lost("FAKE_CUDA_DROPS_PEER_WRITES");
  for (const DeviceLimits& limits : {kExchanging, DeviceLimits{kExchanging.scratch}}) {
    const std::string said = go_by_images(limits);
    EXPECT_EQ(count(said,
                    "heddle[0] warning: GPU 0000:00:00.0 (rank 0 of the node) does not find in its memory "
                    "what was written by GPU 0000:01:00.0 (rank 1)"),
              1U)
        << said;
    EXPECT_EQ(count(said, "warning: "), 1U) << said;
    EXPECT_EQ(count(said, "HEDDLE_DEVICE_BYTES=0, which does not try"), 2U) << said;  // at info as well
  }
}

TEST(GpuReach, ReadsThatAreLost) {
  const Setting lost("FAKE_CUDA_DROPS_PEER_READS");
  const std::string said = go_by_images(kExchanging);
  EXPECT_EQ(count(said,
                  "heddle[0] warning: GPU 0000:00:00.0 (rank 0 of the node) does not read what is in the "
                  "memory of GPU 0000:01:00.0 (rank 1)"),
            1U)
      << said;
  EXPECT_EQ(count(said, "warning: "), 1U) << said;
}

// Streams are refused at the first call already, and no other call tries it again.
TEST(GpuReach, WritesThatAreLostByStreams) {
  const Setting lost("FAKE_CUDA_DROPS_PEER_WRITES");
  ::testing::internal::CaptureStderr();
  const bool right = on_processes(library, kRanks, kExchanging, [](NodeRank& rank) {
    alarm(kLongest);
    const TestStream stream(rank.driver(), rank.rank());
    const TestWords words(rank.driver(), rank.rank(), 1000, 1);
    int allocated = 0;
    for (int call = 0; call < 3; ++call) {
      if (!is_refused(rank, sum_on(rank, stream, words), false)) return false;
      if (call == 0) allocated = rank.driver().calls("cuMemAlloc");
    }
    return expect(rank.driver().calls("cuMemAlloc") == allocated, rank, "set up again");
  });
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(right) << said;
  EXPECT_EQ(count(said, "warning: "), 1U) << said;
}

// Kernels that write into others' scratch are under way when what comes after them fails, and nobody frees
// that scratch before they are done. The ranks are threads: so no memory has to be closed, which would wait
// for them.
TEST(GpuReach, KernelsUnderWayAfterAFailure) {
  EXPECT_TRUE(on_threads(library, kRanks, kExchanging.scratch, [](NodeRank& rank) {
    const TestMemory memory(rank.driver(), Memory::device, sizeof(float), rank.rank());
    bool has_failed = false;
    // Scratch has been opened, and no kernel is given before all ranks have said so.
    rank.before_meeting = [&](std::span<const std::uint64_t>) {
      if (has_failed || rank.driver().calls("cuCtxEnablePeerAccess") == 0) return;
      fail_calls(rank, true, {"cuMemcpyDtoHAsync"});
      has_failed = true;
    };
    for (int call = 0; call < kCalls && !has_failed; ++call) {
      const Status status = rank.staged_sum(memory.as<float>(), memory.as<float>(), 1);
      if (!expect(status.ok(), rank, "a sum by images: " + status.message())) return false;
    }
    return expect(has_failed && !rank.path().on(), rank, "nothing has failed") &&
           expect(rank.driver().calls("cuLaunchKernel") == kRanks * kRanks, rank, "kernels were not given");
  }));
}

// Without HEDDLE_TIMEOUT.
TEST(GpuReach, ExchangesThatAreLost) {
  const Setting lost("FAKE_CUDA_DROPS_EXCHANGES");
  DeviceLimits limits = kExchanging;
  limits.tries = true;
  const std::string said = go_by_images(limits);
  EXPECT_GE(count(said, "have waited for each other in vain in a kernel that was tried"), 1U) << said;
}

// Ranks that have found several ways for the same, and remember other ones, try it anew.
TEST(GpuReach, WaysThatRanksRememberDifferently) {
  static KnownWays known;  // of each process
  DeviceLimits limits = kExchanging;
  limits.tries = true;
  limits.known = &known;
  EXPECT_TRUE(on_processes(library, kRanks, limits, [](NodeRank& rank) {
    alarm(kLongest);
    const TestMemory memory(rank.driver(), Memory::device, sizeof(float), rank.rank());
    const auto begins = [&](int most) {
      for (int call = 0; call < most && !rank.path().on(); ++call) {
        const Status status = rank.staged_sum(memory.as<float>(), memory.as<float>(), 1);
        if (!status.ok()) return expect(false, rank, "a sum by images: " + status.message());
      }
      return expect(rank.path().on(), rank, "the GPUs serve no calls");
    };
    const auto ends = [&] {
      float value = 0;  // on the host; what is so long is for the GPUs
      for (int call = 0; call < kCalls && rank.path().on(); ++call)
        static_cast<void>(rank.path().allreduce(&value, &value, std::size_t{1} << 28, DType::f32, Op::sum));
      return expect(!rank.path().on(), rank, "the GPUs go on");
    };
    if (!begins(kCalls) || !ends()) return false;
    const auto found = known.all();
    if (!expect(found.size() == 1, rank, "nothing is remembered")) return false;
    DeviceWays others = found.begin()->second;
    others.sums_from += 64;
    if (rank.rank() == 1) known.keep(found.begin()->first, others);
    if (!begins(2 * kCalls)) return false;
    return expect(known.all().begin()->second != others || rank.rank() != 1, rank, "not tried anew");
  }));
}

// Where events alone cannot be shared, streams are refused, at no cost from the second time on, and blocking
// calls go on by the GPUs.
TEST(GpuReach, EventsThatCannotBeShared) {
  EXPECT_TRUE(on_processes(library, kRanks, DeviceLimits{kExchanging.scratch}, [](NodeRank& rank) {
    alarm(kLongest);
    const TestStream stream(rank.driver(), rank.rank());
    const TestWords words(rank.driver(), rank.rank(), 1000, 1);
    fail_calls(rank, true, {"cuIpcGetEventHandle"}, CUDA_ERROR_NOT_SUPPORTED);
    int allocated = 0;
    int events = 0;
    for (int call = 0; call < kCalls; ++call) {
      if (!is_refused(rank, sum_on(rank, stream, words), true) || !sum_is_right(rank, words)) return false;
      if (call == 0) allocated = rank.driver().calls("cuMemAlloc");
      if (call == 1) events = rank.driver().calls("cuIpcGetEventHandle");
    }
    return expect(rank.driver().calls("cuMemAlloc") == allocated, rank, "set up again") &&
           expect(rank.driver().calls("cuIpcGetEventHandle") == events, rank, "tried again");
  }));
}

// What failed once is tried once more, without what there is of it being made again.
TEST(GpuReach, EventsThatCannotBeSharedAtOnce) {
  EXPECT_TRUE(on_processes(library, kRanks, DeviceLimits{kExchanging.scratch}, [](NodeRank& rank) {
    alarm(kLongest);
    const TestStream stream(rank.driver(), rank.rank());
    const TestWords words(rank.driver(), rank.rank(), 1000, 1);
    if (rank.rank() == 1) fail_calls(rank, true, {"cuIpcOpenEventHandle"}, CUDA_ERROR_NOT_SUPPORTED);
    if (!is_refused(rank, sum_on(rank, stream, words), true)) return false;
    fail_calls(rank, false, {"cuIpcOpenEventHandle"});
    const int allocated = rank.driver().calls("cuMemAlloc");
    const int events = rank.driver().calls("cuEventCreate");
    if (!expect(sum_on(rank, stream, words).ok(), rank, "refused")) return false;
    stream.wait();
    rank.barrier();
    return expect(words.value() == kRanks, rank, "a sum is wrong") &&
           expect(rank.driver().calls("cuMemAlloc") == allocated, rank, "set up again") &&
           expect(rank.driver().calls("cuEventCreate") == events, rank, "events were made again");
  }));
}

TEST(GpuReach, ScratchThatCannotBeShared) {
  EXPECT_TRUE(on_processes(library, kRanks, DeviceLimits{kExchanging.scratch}, [](NodeRank& rank) {
    alarm(kLongest);
    const TestStream stream(rank.driver(), rank.rank());
    const TestWords words(rank.driver(), rank.rank(), 1000, 1);
    fail_calls(rank, true, {"cuIpcGetMemHandle"}, CUDA_ERROR_NOT_SUPPORTED);
    int allocated = 0;
    for (int call = 0; call < kCalls; ++call) {
      if (!is_refused(rank, sum_on(rank, stream, words), false)) return false;
      if (call == 1) allocated = rank.driver().calls("cuMemAlloc");
    }
    return expect(rank.driver().calls("cuMemAlloc") == allocated, rank, "set up again");
  }));
}

}  // namespace
}  // namespace heddle::test
