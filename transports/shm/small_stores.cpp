#include "transports/shm/small_stores.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace heddle {
namespace {

constexpr int kTurns = 7;        // of each way; the median counts
constexpr int kOperations = 12;  // timed together
constexpr std::size_t kMiddleTrial = 1024;
constexpr std::size_t kLargeTrial = 8192;
constexpr double kWorthwhile = 0.95;  // of the default's time

using Clock = std::chrono::steady_clock;

struct Buffers {
  std::vector<std::byte> in = std::vector<std::byte>(kLargeTrial);
  std::vector<std::byte> out = std::vector<std::byte>(kLargeTrial);
};

Result<double> time_operations(const StoreTrial& trial, Buffers& buffers, std::size_t bytes) {
  Clock::time_point start;
  // The first is not timed: in it the members come together.
  for (int i = 0; i <= kOperations; ++i) {
    if (i == 1) start = Clock::now();
    TeamOp op;
    op.in = buffers.in.data();
    op.out = buffers.out.data();
    op.count = bytes;
    op.fold = trial.fold;
    HEDDLE_TRY(trial.run(op));
  }
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::array<double, kTurns> times) {
  std::sort(times.begin(), times.end());
  return times[kTurns / 2];
}

// The best of `ways`, the first of which is the default, for payloads of `bytes`.
Result<StoreWay> best(const StoreTrial& trial, Buffers& buffers, const std::vector<StoreWay>& ways,
                      std::size_t bytes) {
  std::vector<std::array<double, kTurns>> times(ways.size());
  for (std::size_t turn = 0; turn < kTurns; ++turn) {
    for (std::size_t w = 0; w < ways.size(); ++w) {
      trial.use({ways[w], ways[w]});
      const Result<double> time = time_operations(trial, buffers, bytes);
      if (!time.ok()) return time.status();
      times[w][turn] = time.value();
    }
  }
  std::size_t found = 0;
  double least = median(times[0]) * kWorthwhile;
  for (std::size_t w = 1; w < ways.size(); ++w) {
    const double time = median(times[w]);
    if (time >= least) continue;
    least = time;
    found = w;
  }
  return ways[found];
}

// The default first.
std::vector<StoreWay> candidates(StoreWay unmeasured) {
  std::vector<StoreWay> ways = {unmeasured};
  for (const StoreWay way : {StoreWay::cached, StoreWay::demoted, StoreWay::streamed}) {
    if (way != unmeasured && (way != StoreWay::demoted || processor_demotes())) ways.push_back(way);
  }
  return ways;
}

}  // namespace

const char* store_way_name(StoreWay way) {
  return way == StoreWay::cached ? "cached" : way == StoreWay::demoted ? "demoted" : "streamed";
}

bool processor_demotes() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kCldemote = 1U << 25;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (c & kCldemote) != 0;
#else
  return false;
#endif
}

SmallStores default_small_stores() {
  if (processor_demotes()) return {StoreWay::demoted, StoreWay::streamed};
  return {StoreWay::cached, StoreWay::cached};
}

Result<SmallStores> measure_small_stores(const StoreTrial& trial) {
  const SmallStores unmeasured = default_small_stores();
  Buffers buffers;
  const Result<StoreWay> middle = best(trial, buffers, candidates(unmeasured.middle), kMiddleTrial);
  if (!middle.ok()) return middle.status();
  const Result<StoreWay> large = best(trial, buffers, candidates(unmeasured.large), kLargeTrial);
  if (!large.ok()) return large.status();
  const SmallStores found = {middle.value(), large.value()};
  trial.use(found);
  return found;
}

}  // namespace heddle
