#include "common/pacing.hpp"

#include <algorithm>

namespace heddle::bench {

double warm_up(const Job& job, const WarmUp& plan, const std::function<double(long)>& run) {
  // The first call may set things up, so that one run says little about the next: make three at least, unless
  // told.
  constexpr int kLeastRuns = 3;
  double spent = 0;
  double per_call = 0;
  long done = 0;
  long length = 1;
  for (int runs = 0;; ++runs) {
    const bool enough = plan.calls ? done >= *plan.calls
                                   : runs >= kLeastRuns && (done >= plan.usual || spent >= plan.seconds);
    if (enough) break;
    if (plan.calls) length = std::min(length, *plan.calls - done);
    const double seconds = job.maximum(run(length));
    per_call = seconds / static_cast<double>(length);
    spent += seconds;
    done += length;
    length *= 2;
  }
  // `-x 0` leaves nothing to go by but a call of its own.
  return done > 0 ? per_call : job.maximum(run(1));
}

long calls_within(double seconds, double seconds_per_call, long least, long most) {
  if (seconds_per_call <= 0) return most;
  const double calls = std::min(seconds / seconds_per_call, static_cast<double>(most));
  return std::clamp(static_cast<long>(calls), least, most);
}

}  // namespace heddle::bench
