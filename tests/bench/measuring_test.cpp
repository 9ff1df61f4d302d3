// The parts of a measurement that are no measurement: buffers and pacing, in a job of one rank.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <set>
#include <thread>

#include "common/buffers.hpp"
#include "common/collective_bench.hpp"
#include "common/overlap_bench.hpp"
#include "common/pacing.hpp"
#include "common/placement.hpp"
#include "in_a_job.hpp"

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

// An allgather's results are as many times as long as there are ranks; no pool takes another's memory.
TEST(Memory, IsSharedByLength) {
  for (const int ranks : {2, 3, 64}) {
    for (const std::size_t largest : {std::size_t{1}, std::size_t{3000}, std::size_t{1} << 20}) {
      Options options;
      options.kind = Kind::allgather;
      options.max_bytes = largest;
      const std::size_t received = largest * static_cast<std::size_t>(ranks);
      const std::size_t least = least_memory(options, ranks);
      EXPECT_EQ(least, BufferPool::least_size(largest) + BufferPool::least_size(received));
      for (const std::size_t memory : {least, 3 * least, 100 * least}) {
        const MemoryShares shares = share_memory(options, memory, ranks);
        EXPECT_LE(pooled_memory(options, memory, ranks), memory) << largest << " of " << ranks;
        EXPECT_LE(BufferPool::least_size(received), shares.receive) << largest << " of " << ranks;
      }
    }
  }
  Options options;
  options.kind = Kind::allgather;
  // What the pages that are begun leave is for one long buffer less.
  options.max_bytes = 2000;
  EXPECT_LE(pooled_memory(options, 18'518, 2), 18'518U);
  options.max_bytes = 1 << 20;
  const MemoryShares shares = share_memory(options, std::size_t{130} << 20, 64);
  EXPECT_EQ(BufferPool::count_in(shares.send, 1 << 20), BufferPool::count_in(shares.receive, 64 << 20));
  options.in_place = true;
  EXPECT_EQ(share_memory(options, 1 << 30, 64).send, std::size_t{1} << 30);
  EXPECT_EQ(least_memory(options, 64), BufferPool::least_size(64 << 20));
}

TEST(Pacing, FitsCallsIntoTime) {
  EXPECT_EQ(calls_within(1.0, 0.01, 1, 1000), 100);
  EXPECT_EQ(calls_within(1.0, 1e-9, 1, 1000), 1000);
  EXPECT_EQ(calls_within(1.0, 5.0, 3, 1000), 3);
  EXPECT_EQ(calls_within(1.0, 0.0, 3, 1000), 1000);
}

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

// A collective that is a computation of this rank's own: nothing overlaps, and the bench's computation takes
// as long.
class BusySide final : public Side {
 public:
  const char* name() const override { return "busy"; }
  void allreduce(const void*, void*, std::size_t) override { work(); }
  void reduce(const void*, void*, std::size_t, int) override { work(); }
  void bcast(void*, std::size_t, int) override { work(); }
  void allgather(const void*, void*, std::size_t) override { work(); }
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
  void allgather(const void*, void*, std::size_t) override {}
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

}  // namespace
}  // namespace heddle::bench
