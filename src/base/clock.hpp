// The clock that waits and measurements go by. A value, since a simulator has a time of its own.
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>
#include <functional>

namespace heddle {

using TimePoint = std::chrono::steady_clock::time_point;

// Null: the steady clock. Never goes back.
using Clock = std::function<TimePoint()>;

inline TimePoint now(const Clock& clock) {
  return clock ? clock() : std::chrono::steady_clock::now();
}

// On the steady clock.
inline double seconds_since(TimePoint start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Since some moment in the past. Costs a few nanoseconds, and is a few milliseconds coarse.
inline std::int64_t coarse_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1000000;
}

}  // namespace heddle
