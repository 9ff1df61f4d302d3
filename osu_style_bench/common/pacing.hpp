// How many calls to time: as many as asked for, or as many as the time allows, agreed by all ranks.
#pragma once

#include <chrono>
#include <functional>
#include <optional>

#include "common/job.hpp"

namespace heddle::bench {

// Seconds on a clock that never jumps.
inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct WarmUp {
  std::optional<long> calls;  // exactly so many; unset: until `usual` calls or `seconds` have passed
  long usual = 100;
  double seconds = 0.2;
};

// Runs the warm-up calls in runs that double in length. `run(n)` makes n calls and returns the seconds they
// took on this rank. Returns the seconds of one call as the longest of the last runs saw it, equal on all
// ranks; collective.
double warm_up(const Job& job, const WarmUp& plan, const std::function<double(long)>& run);

// How many calls of `seconds_per_call` fit in `seconds`, between `least` and `most`.
long calls_within(double seconds, double seconds_per_call, long least, long most);

}  // namespace heddle::bench
