#include "transports/shm/small_stores.hpp"

#include <array>
#include <chrono>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/median.hpp"

namespace heddle {
namespace {

constexpr int kStoreTurns = 7;  // of each way; the median counts
constexpr int kBcasts = 12;     // timed together
constexpr std::size_t kMiddleTrial = 1024;
constexpr std::size_t kLargeTrial = 8192;
constexpr double kWorthwhileStores = 0.95;  // of the default's time

using Steady = std::chrono::steady_clock;

// One measurement in progress.
struct StoreMeasurement {
  StoreMeasurement(const StoreTrial& what, int how_many) : trial(what), members(how_many) {}

  Status come_together();
  Status time_bcasts(std::size_t bytes, double* seconds);
  Status choose(const std::vector<StoreWay>& ways, std::size_t bytes, StoreWay* chosen);

  const StoreTrial& trial;
  int members;
  int root = 0;  // of the next bcast
  Steady::time_point begin = Steady::now();
  std::vector<std::byte> data = std::vector<std::byte>(kLargeTrial);
  bool over = false;  // on every member, after the same operation
};

// Whether a member's budget is spent is what all learn by it.
Status StoreMeasurement::come_together() {
  const std::byte mine{Steady::now() - begin > trial.budget};
  std::byte any{};
  TeamOp op;
  op.in = &mine;
  op.out = &any;
  op.count = 1;
  op.fold = trial.fold;
  HEDDLE_TRY(trial.run(op));
  over = any != std::byte{0};
  return {};
}

// Members are the root in turn, so that none is ahead: whoever is next has had the one before. An allreduce
// of as many bytes by more than a few members does not go by way of small slots.
Status StoreMeasurement::time_bcasts(std::size_t bytes, double* seconds) {
  HEDDLE_TRY(come_together());
  if (over) return {};
  const Steady::time_point start = Steady::now();
  for (int i = 0; i < kBcasts; ++i) {
    TeamOp op;
    op.verb = TeamVerb::bcast;
    op.in = op.out = data.data();
    op.count = bytes;
    op.root = root;
    HEDDLE_TRY(trial.run(op));
    root = (root + 1) % members;
  }
  *seconds = std::chrono::duration<double>(Steady::now() - start).count();
  return {};
}

// The best of `ways`, the first of which is the default, for payloads of `bytes`.
Status StoreMeasurement::choose(const std::vector<StoreWay>& ways, std::size_t bytes, StoreWay* chosen) {
  *chosen = ways.front();
  std::vector<std::array<double, kStoreTurns>> times(ways.size());
  for (std::size_t turn = 0; turn < kStoreTurns && !over; ++turn) {
    for (std::size_t w = 0; w < ways.size() && !over; ++w) {
      trial.use({ways[w], ways[w]});
      HEDDLE_TRY(time_bcasts(bytes, &times[w][turn]));
    }
  }
  if (over) return {};
  double least = median(times[0]) * kWorthwhileStores;
  for (std::size_t w = 1; w < ways.size(); ++w) {
    const double time = median(times[w]);
    if (time >= least) continue;
    least = time;
    *chosen = ways[w];
  }
  return {};
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

Result<SmallStores> measure_small_stores(const StoreTrial& trial, int members) {
  const SmallStores unmeasured = default_small_stores();
  SmallStores found = unmeasured;
  StoreMeasurement measurement(trial, members);
  HEDDLE_TRY(measurement.choose(candidates(unmeasured.middle), kMiddleTrial, &found.middle));
  HEDDLE_TRY(measurement.choose(candidates(unmeasured.large), kLargeTrial, &found.large));
  if (measurement.over) found = unmeasured;
  trial.use(found);
  return found;
}

}  // namespace heddle
