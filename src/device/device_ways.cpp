#include "device/device_ways.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include <fmt/format.h>

namespace heddle {
namespace {

constexpr std::size_t kStep = 8;  // from one length that is tried to the next
constexpr std::array<std::size_t, 7> kSizes{
    64, 512, 4'096, 32'768, 262'144, 2'097'152, std::size_t{16} << 20};
constexpr double kNeverTried = std::numeric_limits<double>::infinity();
// GPUs leave the host's memory and cores alone: images have to be faster than that.
constexpr double kNoWorse = 1.1;
// Nothing is gained by trying images at lengths beyond one where they took so many times as long as what long
// vectors go by.
constexpr double kHopeless = 2;
// Seconds of one call each way, after which nothing longer is tried: of many ranks that take turns on a GPU.
constexpr double kEnough = 0.01;

struct Times {
  std::size_t bytes = 0;
  double by_way[4] = {kNeverTried, kNeverTried, kNeverTried, kNeverTried};

  double& of(DeviceWay way) { return by_way[static_cast<int>(way)]; }
  double of(DeviceWay way) const { return by_way[static_cast<int>(way)]; }
  double by_scratch() const { return std::min(of(DeviceWay::whole), of(DeviceWay::shared)); }
};

Result<std::vector<Times>> try_sizes(const DeviceTrials& trials, bool sum) {
  std::vector<Times> all;
  bool images = true;
  double spent = 0;
  for (const std::size_t bytes : kSizes) {
    if (bytes > trials.most || spent > kEnough) break;
    Times times{bytes};
    std::vector<DeviceWay> ways{DeviceWay::whole};
    if (images) ways.push_back(DeviceWay::images);
    if (bytes <= trials.exchanged) ways.push_back(DeviceWay::exchanged);
    if (sum && trials.ranks > 2) ways.push_back(DeviceWay::shared);
    for (const DeviceWay way : ways) {
      const Result<double> seconds = trials.time(sum, way, bytes);
      HEDDLE_TRY(seconds.status());
      times.of(way) = seconds.value();
      spent += seconds.value();
    }
    images = times.of(DeviceWay::images) < kHopeless * times.by_scratch();
    all.push_back(times);
  }
  return all;
}

// From which length on `better` holds of all that were tried, and so of longer ones; where it does not hold
// of the longest, it is taken to hold of what is longer than that by another step, since less depends on what
// a step costs there.
template <typename Better>
std::size_t from_which_on(const std::vector<Times>& all, const Better& better) {
  std::size_t from = kStep * all.back().bytes;
  for (auto times = all.rbegin(); times != all.rend() && better(*times); ++times)
    from = times->bytes;
  return from == kSizes.front() ? 0 : from;
}

// Up to the last length at which exchanging was no slower than scratch, from the shortest on; the limit where
// it never was.
std::size_t exchanged_to(const std::vector<Times>& all, std::size_t limit) {
  std::size_t to = 0;
  for (const Times& times : all) {
    if (times.bytes > limit) break;
    if (times.of(DeviceWay::exchanged) > times.by_scratch()) return to;
    to = times.bytes;
  }
  return limit;
}

// By the way that GPUs take then.
std::size_t gpus_from(const std::vector<Times>& all, std::size_t exchanged, std::size_t shared_from) {
  const auto taken = [&](const Times& times) {
    if (times.bytes <= exchanged) return times.of(DeviceWay::exchanged);
    const bool shared = times.bytes >= shared_from && times.of(DeviceWay::shared) != kNeverTried;
    return times.of(shared ? DeviceWay::shared : DeviceWay::whole);
  };
  return from_which_on(
      all, [&](const Times& times) { return taken(times) <= kNoWorse * times.of(DeviceWay::images); });
}

std::string text_of(const char* what, std::size_t from, std::size_t exchanged) {
  std::string text = fmt::format("{} of ", what);
  text += from == 0 ? "any length" : fmt::format("{} bytes or more", from);
  if (exchanged > 0) text += fmt::format(" (up to {} by kernels that wait for each other)", exchanged);
  return text;
}

}  // namespace

std::string text_of(const DeviceWays& ways) {
  return text_of("allreduces", ways.sums_from, ways.sums_exchanged) + ", " +
         text_of("bcasts", ways.bcasts_from, ways.bcasts_exchanged);
}

Result<DeviceWays> try_device_ways(const DeviceTrials& trials) {
  const Result<std::vector<Times>> sums = try_sizes(trials, true);
  HEDDLE_TRY(sums.status());
  const Result<std::vector<Times>> bcasts = try_sizes(trials, false);
  HEDDLE_TRY(bcasts.status());
  DeviceWays ways;
  ways.sums_exchanged = exchanged_to(sums.value(), trials.exchanged);
  ways.bcasts_exchanged = exchanged_to(bcasts.value(), trials.exchanged);
  if (sums.value().empty()) return ways;
  if (trials.ranks > 2)
    ways.shared_from = from_which_on(sums.value(), [](const Times& times) {
      return times.of(DeviceWay::shared) <= times.of(DeviceWay::whole);
    });
  ways.sums_from = gpus_from(sums.value(), ways.sums_exchanged, ways.shared_from);
  ways.bcasts_from = gpus_from(bcasts.value(), ways.bcasts_exchanged, ways.shared_from);
  return ways;
}

}  // namespace heddle
