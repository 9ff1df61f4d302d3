#include "comm/device_ways.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include <fmt/format.h>

namespace heddle {
namespace {

// Eight times as long each. What is longer than the last goes as that does.
constexpr std::array<std::size_t, 6> kSizes{64, 512, 4'096, 32'768, 262'144, std::size_t{2} << 20};
constexpr double kNeverTried = std::numeric_limits<double>::infinity();
// GPUs leave the host's memory and cores alone: images have to be faster than that.
constexpr double kNoWorse = 1.1;
// Nothing is gained by trying images at lengths beyond one where they took so many times as long.
constexpr double kHopeless = 2;

struct Times {
  std::size_t bytes = 0;
  double by_way[4] = {kNeverTried, kNeverTried, kNeverTried, kNeverTried};

  double& of(DeviceWay way) { return by_way[static_cast<int>(way)]; }
  double of(DeviceWay way) const { return by_way[static_cast<int>(way)]; }
  double by_gpus() const {
    return std::min({of(DeviceWay::exchanged), of(DeviceWay::whole), of(DeviceWay::shared)});
  }
};

Result<std::vector<Times>> try_sizes(const DeviceTrials& trials, bool sum) {
  std::vector<Times> all;
  bool images = true;
  for (const std::size_t bytes : kSizes) {
    if (bytes > trials.most) break;
    Times times{bytes};
    std::vector<DeviceWay> ways{DeviceWay::whole};
    if (images) ways.push_back(DeviceWay::images);
    if (bytes <= trials.exchanged) ways.push_back(DeviceWay::exchanged);
    if (sum && trials.ranks > 2) ways.push_back(DeviceWay::shared);
    for (const DeviceWay way : ways) {
      const Result<double> seconds = trials.time(sum, way, bytes);
      HEDDLE_TRY(seconds.status());
      times.of(way) = seconds.value();
    }
    images = times.of(DeviceWay::images) < kHopeless * times.by_gpus();
    all.push_back(times);
  }
  return all;
}

// From which of the sizes on `better` holds for all; without end where it does not for the last one.
template <typename Better>
std::size_t from_which_on(const std::vector<Times>& all, const Better& better) {
  std::size_t from = std::numeric_limits<std::size_t>::max();
  for (auto times = all.rbegin(); times != all.rend() && better(*times); ++times)
    from = times->bytes;
  return from;
}

std::size_t gpus_from(const std::vector<Times>& all) {
  const std::size_t from = from_which_on(
      all, [](const Times& times) { return times.by_gpus() <= kNoWorse * times.of(DeviceWay::images); });
  return from == kSizes.front() ? 0 : from;
}

// Up to the last size at which exchanging was no slower, from the shortest on; the limit where that is all of them.
std::size_t exchanged_to(const std::vector<Times>& all, std::size_t limit) {
  std::size_t to = 0;
  for (const Times& times : all) {
    if (times.bytes > limit) break;
    if (times.of(DeviceWay::exchanged) > std::min(times.of(DeviceWay::whole), times.of(DeviceWay::shared)))
      return to;
    to = times.bytes;
  }
  return to > 0 ? limit : 0;
}

std::string from_text(std::size_t from) {
  if (from == 0) return "all";
  if (from == std::numeric_limits<std::size_t>::max()) return "none";
  return fmt::format("those from {} bytes on", from);
}

}  // namespace

std::string text_of(const DeviceWays& ways) {
  return fmt::format(
      "of allreduces {}, of bcasts {}{}", from_text(ways.sums_from), from_text(ways.bcasts_from),
      ways.exchanged > 0 ? fmt::format("; up to {} bytes by kernels that wait for each other", ways.exchanged)
                         : "");
}

Result<DeviceWays> try_device_ways(const DeviceTrials& trials) {
  const Result<std::vector<Times>> sums = try_sizes(trials, true);
  HEDDLE_TRY(sums.status());
  const Result<std::vector<Times>> bcasts = try_sizes(trials, false);
  HEDDLE_TRY(bcasts.status());
  DeviceWays ways;
  ways.exchanged = trials.exchanged;
  if (sums.value().empty()) return ways;
  ways.sums_from = gpus_from(sums.value());
  ways.bcasts_from = gpus_from(bcasts.value());
  ways.exchanged = exchanged_to(sums.value(), trials.exchanged);
  if (trials.ranks > 2) {
    // Of long vectors sharing out moves fewer bytes: where it does not pay by the longest that was tried, it may by longer ones.
    const std::size_t from = from_which_on(sums.value(), [](const Times& times) {
      return times.of(DeviceWay::shared) <= times.of(DeviceWay::whole);
    });
    ways.shared_from = std::min(from, 8 * sums.value().back().bytes);
  }
  return ways;
}

}  // namespace heddle
