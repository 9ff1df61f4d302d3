// The clock that waits and measurements go by. A value, since a simulator has a time of its own.
#pragma once

#include <chrono>
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

}  // namespace heddle
