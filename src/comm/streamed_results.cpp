#include "comm/streamed_results.hpp"

#include <array>
#include <cmath>
#include <cstdint>

#include "base/median.hpp"

namespace heddle {
namespace {

constexpr std::size_t kLargestFirst[] = {std::size_t{4} << 20, std::size_t{2} << 20, std::size_t{1} << 20,
                                         std::size_t{512} << 10, std::size_t{256} << 10};
constexpr int kTurns = 6;  // the first of which does not count

using Times = std::array<double, kTurns - 1>;

// Of streaming, as a logarithm of the time without: less than 0 is a gain.
Result<double> gain(const StreamingTrial& trial, std::size_t bytes) {
  Times sums[2] = {};
  for (int turn = 0; turn < kTurns; ++turn) {
    for (const bool streamed : {false, true}) {
      double sum = 0;
      for (const bool reads : {false, true}) {
        const Result<double> seconds = trial.time(bytes, streamed, reads);
        if (!seconds.ok()) return seconds.status();
        sum += seconds.value();
      }
      if (turn > 0) sums[streamed ? 1 : 0][static_cast<std::size_t>(turn - 1)] = sum;
    }
  }
  return std::log(median(sums[1]) / median(sums[0]));
}

}  // namespace

// All sizes together, so that one time that went wrong does not decide.
Result<std::size_t> measure_streaming(const StreamingTrial& trial) {
  std::size_t from = SIZE_MAX;
  double best = 0;
  double sum = 0;
  for (const std::size_t bytes : kLargestFirst) {
    const Result<double> here = gain(trial, bytes);
    if (!here.ok()) return here.status();
    sum += here.value();
    if (sum >= best) continue;
    best = sum;
    from = bytes;
  }
  return from;
}

}  // namespace heddle
