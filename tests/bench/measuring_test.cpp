// The parts of a measurement that are no measurement: buffers, pacing, and the check of results, in a job of
// one rank.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <set>
#include <thread>
#include <utility>

#include "common/buffers.hpp"
#include "common/check_results.hpp"
#include "common/collective_bench.hpp"
#include "common/host_mpi.hpp"
#include "common/overlap_bench.hpp"
#include "common/pacing.hpp"
#include "common/placement.hpp"

namespace heddle::bench {
namespace {

TEST(BufferPool, GivesFreshBuffersThatDoNotOverlap) {
  BufferPool pool(1 << 20, 4096, Dtype::float32);
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{100}, std::size_t{4096}}) {
    pool.cut(bytes, false);
    std::set<std::uintptr_t> starts;
    for (std::size_t i = 0; i < pool.count(); ++i)
      starts.insert(reinterpret_cast<std::uintptr_t>(pool.next()));
    EXPECT_EQ(starts.size(), 63U);
    std::uintptr_t end = 0;
    for (const std::uintptr_t start : starts) {
      EXPECT_EQ(start % 64, 0U);
      EXPECT_GE(start, end);
      end = start + bytes;
    }
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pool.next()), *starts.begin());  // and around
  }
}

TEST(BufferPool, KeepsToItsLimitButHasTwo) {
  BufferPool roomy(1 << 20, 100'000, Dtype::int8);
  EXPECT_EQ(roomy.count(), 9U);
  BufferPool tight(1000, 100'000, Dtype::int8);
  EXPECT_EQ(tight.count(), 2U);
  std::memset(tight.next(), 0, 100'000);
  std::memset(tight.next(), 0, 100'000);
  tight.cut(100'000, true);
  EXPECT_EQ(tight.next(), tight.next());
  for (const std::size_t limit : {8192U, 10'000U, 1U << 20, (1U << 20) + 4095U}) {
    for (const std::size_t largest : {std::size_t{1}, std::size_t{1000}, std::size_t{100'000}})
      EXPECT_LE(BufferPool::size(limit, largest),
                std::max<std::size_t>(limit, BufferPool::least_size(largest)));
  }
}

// An even number would give each of two roots half of the buffers.
TEST(BufferPool, HasAnOddNumberOfBuffersUpToTheMost) {
  for (std::size_t fit = 3; fit < 70; ++fit)
    EXPECT_EQ(BufferPool::count_in(fit * 128, 64) % 2, 1U) << fit;
  EXPECT_EQ(BufferPool::count_in(1 << 20, 64), 63U);
  EXPECT_EQ(BufferPool::count_in(1 << 20, 64, 1000), 999U);
  BufferPool many(1 << 20, 64, Dtype::int8, {}, 1000);
  many.cut(8, false);
  EXPECT_EQ(many.count(), 999U);
}

TEST(BufferPool, HoldsOnes) {
  BufferPool pool(0, 64, Dtype::float64);
  const double* values = static_cast<const double*>(pool.next());
  EXPECT_EQ(values[0], 1);
  EXPECT_EQ(values[7], 1);
}

TEST(Memory, IsSharedByTheRanks) {
  EXPECT_EQ(affordable_memory(1024, 2), 1024U);
  EXPECT_LT(affordable_memory(SIZE_MAX, 1), SIZE_MAX);
  EXPECT_LT(affordable_memory(SIZE_MAX, 1000), affordable_memory(SIZE_MAX, 2));
}

TEST(Pacing, FitsCallsIntoTime) {
  EXPECT_EQ(calls_within(1.0, 0.01, 1, 1000), 100);
  EXPECT_EQ(calls_within(1.0, 1e-9, 1, 1000), 1000);
  EXPECT_EQ(calls_within(1.0, 5.0, 3, 1000), 3);
  EXPECT_EQ(calls_within(1.0, 0.0, 3, 1000), 1000);
}

class InAJob : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string problem;
    // Where there is no MPI to make a job of one rank.
    for (const auto& [name, value] :
         {std::pair("RANK", "0"), std::pair("WORLD_SIZE", "1"), std::pair("MASTER_ADDR", "127.0.0.1"),
          std::pair("MASTER_PORT", "29500")}) {
      if (!host::built_in()) setenv(name, value, 1);
    }
    job = Job::start(nullptr, nullptr, !host::built_in(), false, problem);
    ASSERT_NE(job, nullptr) << problem;
    ASSERT_EQ(job->size(), 1);
  }
  static void TearDownTestSuite() { job.reset(); }
  static std::unique_ptr<Job> job;
};
std::unique_ptr<Job> InAJob::job;

TEST_F(InAJob, WarmUpMakesTheCallsAskedFor) {
  for (const long wanted : {1L, 2L, 10L, 1000L}) {
    long made = 0;
    const double per_call = warm_up(*job, {wanted, 100, 1}, [&](long calls) {
      made += calls;
      return 0.5 * static_cast<double>(calls);
    });
    EXPECT_EQ(made, wanted);
    EXPECT_DOUBLE_EQ(per_call, 0.5);
  }
}

TEST_F(InAJob, WarmUpEndsWithItsTimeAndForgetsTheFirstCall) {
  long made = 0;
  const double per_call = warm_up(*job, {{}, 1'000'000, 10}, [&](long calls) {
    const double seconds = (made == 0 ? 100 : 0) + 0.25 * static_cast<double>(calls);
    made += calls;
    return seconds;
  });
  EXPECT_EQ(made, 1 + 2 + 4);
  EXPECT_DOUBLE_EQ(per_call, 0.25);
}

// One rank's library, which spoils one element if told to.
class FakeSide : public Side {
 public:
  explicit FakeSide(std::size_t width, bool spoil) : width_(width), spoil_(spoil) {}
  const char* name() const override { return "fake"; }
  void allreduce(const void* send, void* receive, std::size_t count) override {
    std::memcpy(receive, send, count * width_);
    spoil(receive, count);
  }
  void reduce(const void* send, void* receive, std::size_t count, int) override {
    allreduce(send, receive, count);
  }
  void bcast(void* buffer, std::size_t count, int) override { spoil(buffer, count); }
  void barrier() override {}
  void start_allreduce(const void* send, void* receive, std::size_t count) override {
    open_ = [=, this] { allreduce(send, receive, count); };
  }
  void start_bcast(void* buffer, std::size_t count, int root) override {
    open_ = [=, this] { bcast(buffer, count, root); };
  }
  bool test() override { return false; }
  void finish() override { open_(); }
  void send(const void*, std::size_t, int) override {}
  void receive(void*, std::size_t, int) override {}
  // As if rank 1 had sent, whose bytes, of 1 to 11, are 3 further than this rank's; spoiled: one message
  // twice.
  void exchange(std::span<void* const> out, std::span<void* const> in, std::size_t count, int) override {
    for (std::size_t i = 0; i < in.size(); ++i) {
      const auto* from = static_cast<const signed char*>(out[spoil_ && i == 1 ? 2 : i]);
      std::transform(from, from + count, static_cast<signed char*>(in[i]),
                     [](int value) { return static_cast<signed char>((value - 1 + 3) % 11 + 1); });
    }
  }
  std::string algorithm(Kind, std::size_t) override { return "-"; }

 private:
  void spoil(void* buffer, std::size_t count) const {
    if (spoil_) static_cast<unsigned char*>(buffer)[count * width_ - 1] ^= 0x40;  // in the last element
  }
  std::size_t width_;
  bool spoil_;
  std::function<void()> open_;
};

// Uses what is sent as scratch.
class ScratchSide final : public FakeSide {
 public:
  using FakeSide::FakeSide;
  void reduce(const void* send, void* receive, std::size_t count, int root) override {
    FakeSide::reduce(send, receive, count, root);
    std::memset(const_cast<void*>(send), 0, 1);
  }
};

// A collective that is a computation of this rank's own: nothing overlaps, and the bench's computation takes
// as long.
class BusySide final : public Side {
 public:
  const char* name() const override { return "busy"; }
  void allreduce(const void*, void*, std::size_t) override { work(); }
  void reduce(const void*, void*, std::size_t, int) override { work(); }
  void bcast(void*, std::size_t, int) override { work(); }
  void barrier() override { work(); }
  void start_allreduce(const void*, void*, std::size_t) override {}
  void start_bcast(void*, std::size_t, int) override {}
  bool test() override { return false; }
  void finish() override { work(); }
  void send(const void*, std::size_t, int) override {}
  void receive(void*, std::size_t, int) override {}
  void exchange(std::span<void* const>, std::span<void* const>, std::size_t, int) override {}
  std::string algorithm(Kind, std::size_t) override { return "-"; }

 private:
  // The first calls are slower, as where connections are made.
  void work() {
    for (long i = 0; i < (calls_ < 3 ? 600'000 : 20'000); ++i)
      asm volatile("" : : : "memory");
    ++calls_;
  }
  long calls_ = 0;
};

TEST_F(InAJob, TheComputationTakesAsLongAsTheCollective) {
  Options options;
  options.kind = Kind::iallreduce;
  options.max_bytes = 8;
  options.dtype = Dtype::float32;
  options.warmup = 1;
  options.max_seconds = 0.1;
  BusySide side;
  OverlapBench bench(*job, options, 1 << 16, {});
  const OverlapRow row = bench.measure(side, 8);
  // Of the first calls it would be 30 times as long.
  EXPECT_GT(row.compute_us, row.pure_us / 5);
  EXPECT_LT(row.compute_us, row.pure_us * 5);
}

// Takes its time, and counts.
class CountingSide final : public Side {
 public:
  explicit CountingSide(double seconds) : seconds_(seconds) {}
  const char* name() const override { return "counting"; }
  void allreduce(const void*, void*, std::size_t) override {
    ++calls;
    for (const double begin = now(); now() - begin < seconds_;)
      asm volatile("" : : : "memory");
  }
  void reduce(const void*, void*, std::size_t, int) override {}
  void bcast(void*, std::size_t, int) override {}
  void barrier() override {}
  void start_allreduce(const void*, void*, std::size_t) override {}
  void start_bcast(void*, std::size_t, int) override {}
  bool test() override { return false; }
  void finish() override {}
  void send(const void*, std::size_t, int) override {}
  void receive(void*, std::size_t, int) override {}
  void exchange(std::span<void* const>, std::span<void* const>, std::size_t, int) override {}
  std::string algorithm(Kind, std::size_t) override { return "-"; }
  long calls = 0;

 private:
  double seconds_;
};

// Through all 63 buffers, or what fits in 20 ms; then the timed call and the one that leads out.
TEST_F(InAJob, AComparedSideLeadsInThroughItsBuffers) {
  Options options;
  options.kind = Kind::allreduce;
  options.versus = Versus::mpi;
  options.max_bytes = 8;
  options.dtype = Dtype::float32;
  options.warmup = 1;
  options.rounds = 6;
  options.iterations = 6;
  CountingSide quick(2e-5);
  CountingSide slow(5e-3);
  CollectiveBench bench(*job, options, 1 << 16);
  const ComparedRow row = bench.compare(quick, slow, 8);
  EXPECT_EQ(row.host.calls_per_sample, 1);
  EXPECT_GE(quick.calls, 6 * (63 + 2));
  EXPECT_GE(slow.calls, 6 * (1 + 2));
  EXPECT_LE(slow.calls, 3 + 6 * (4 + 2));
}

TEST(Overlap, IsOfWhatCouldBeSaved) {
  EXPECT_DOUBLE_EQ(overlap_percent(10, 10, 10), 100);
  EXPECT_DOUBLE_EQ(overlap_percent(10, 8, 10), 100);
  EXPECT_DOUBLE_EQ(overlap_percent(8, 10, 10), 100);
  EXPECT_DOUBLE_EQ(overlap_percent(10, 8, 14), 50);
  EXPECT_DOUBLE_EQ(overlap_percent(10, 10, 21), 0);
}

TEST(Overlap, IsNotSaidWhereTheTimesDoNotTell) {
  EXPECT_EQ(why_no_overlap(10, 10, 10), "");
  EXPECT_EQ(why_no_overlap(10, 10, 9.6), "");
  EXPECT_NE(why_no_overlap(10, 10, 9.4).find("9.4 us, less than"), std::string::npos);
  EXPECT_EQ(why_no_overlap(10, 19, 20), "");
  EXPECT_NE(why_no_overlap(10, 21, 22).find("2.1 times as long"), std::string::npos);
  EXPECT_NE(why_no_overlap(10, 4, 12).find("0.4 times as long"), std::string::npos);
}

// Two threads that want one core interrupt each other; what was before the watch does not count.
TEST_F(InAJob, TheWatchCountsInterruptions) {
  const auto interruptions = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_nivcsw;
  };
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int core = 0; CPU_COUNT(&one) == 0; ++core)
    if (CPU_ISSET(core, &all)) CPU_SET(core, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  std::atomic<bool> stop = false;
  std::thread other([&] {
    while (!stop)
      continue;
  });  // on the same core, as threads inherit it
  const double begin = now();
  const auto more = [&](long wanted) {
    for (const long before = interruptions(); interruptions() < before + wanted && now() < begin + 30;)
      continue;
  };
  more(3);
  const long before = interruptions();
  CoreWatch watch(*job);
  more(2);
  watch.end(*job, "measuring_test");
  const long after = interruptions();
  stop = true;
  other.join();
  sched_setaffinity(0, sizeof all, &all);
  if (after == before) GTEST_SKIP() << "this kernel counts no interruptions";
  EXPECT_GE(watch.interruptions().most, 2);
  EXPECT_LE(watch.interruptions().most, after - before);
  EXPECT_GT(watch.interruptions().per_second, 0);
  EXPECT_EQ(watch.places().size(), 1U);
}

// A side that sums in place whatever it is told to send.
TEST_F(InAJob, ValidationInPlaceSendsWhatLiesThere) {
  constexpr std::size_t kBytes = 800;
  BufferPool send(0, kBytes, Dtype::float32);
  BufferPool receive(0, kBytes, Dtype::float32);
  CountingSide nothing(0);
  EXPECT_TRUE(collective_is_right(*job, nothing, Kind::allreduce, Dtype::float32, kBytes, send, nullptr));
  EXPECT_FALSE(collective_is_right(*job, nothing, Kind::allreduce, Dtype::float32, kBytes, send, &receive));
}

TEST_F(InAJob, ValidationTellsRightFromWrong) {
  constexpr std::size_t kBytes = 1000 * 8;
  for (const Dtype dtype : {Dtype::int8, Dtype::int32, Dtype::float32, Dtype::float64}) {
    BufferPool send(0, kBytes, dtype);
    BufferPool receive(0, kBytes, dtype);
    FakeSide good(size_of(dtype), false);
    FakeSide bad(size_of(dtype), true);
    for (const Kind kind : {Kind::allreduce, Kind::reduce, Kind::bcast, Kind::iallreduce, Kind::ibcast}) {
      EXPECT_TRUE(collective_is_right(*job, good, kind, dtype, kBytes, send, &receive)) << mpi_name(dtype);
      EXPECT_FALSE(collective_is_right(*job, bad, kind, dtype, kBytes, send, &receive)) << mpi_name(dtype);
    }
  }
}

TEST_F(InAJob, ValidationOfAReduceLooksAtItsInput) {
  constexpr std::size_t kBytes = 4;
  BufferPool send(0, kBytes, Dtype::int8);
  BufferPool receive(0, kBytes, Dtype::int8);
  ScratchSide side(1, false);
  EXPECT_FALSE(collective_is_right(*job, side, Kind::reduce, Dtype::int8, kBytes, send, &receive));
}

TEST_F(InAJob, ValidationOfAWindowTellsMessagesApart) {
  constexpr std::size_t kBytes = 1000;
  BufferPool send(1 << 20, kBytes, Dtype::int8);
  BufferPool receive(1 << 20, kBytes, Dtype::int8);
  FakeSide good(1, false);
  FakeSide bad(1, true);
  EXPECT_TRUE(window_is_right(*job, good, Dtype::int8, kBytes, 64, true, send, receive));
  EXPECT_FALSE(window_is_right(*job, bad, Dtype::int8, kBytes, 64, true, send, receive));
}

}  // namespace
}  // namespace heddle::bench
