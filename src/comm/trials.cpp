#include "comm/trials.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>

#include "base/clock.hpp"
#include "comm/communicator_impl.hpp"
#include "engine/kernels/kernels.hpp"

namespace heddle {

Status Trials::make_room(std::size_t bytes) {
  double missing = 0;
  try {
    vectors_.resize(std::max(vectors_.size(), 2 * bytes / sizeof(float)));
  } catch (const std::exception&) {
    missing = 1;
  }
  HEDDLE_TRY(largest({&missing, 1}));
  if (missing == 0) return {};
  return Status(Code::out_of_memory,
                fmt::format("a rank has no memory for two vectors of {} bytes, the largest size", bytes));
}

Job Trials::job(Collective collective, std::size_t bytes) {
  const std::size_t count = bytes / sizeof(float);
  const FoldFn fold = comm_.folds_.of(DType::f32, Op::sum, count);
  float* const data = vectors_.data();
  return collective == Collective::bcast ? Job{collective, data, data, bytes, 1, nullptr, 0}
                                         : Job{collective, data, data + count, count, sizeof(float), fold, 0};
}

Result<double> Trials::in_a_row(Collective collective, const Choice& choice, std::size_t bytes, int times) {
  vectors_.resize(std::max(vectors_.size(), 2 * bytes / sizeof(float)));
  Job each = job(collective, bytes);
  TimePoint start;
  // The first is not timed: in it the ranks come together. Not so in a bcast that its root may leave before
  // the others, as through slots: in the next one it would wait for them to end the first.
  for (int i = 0; i <= times; ++i) {
    if (i == 1 && collective == Collective::bcast) HEDDLE_TRY(comm_.barrier());
    if (i == 1) start = now(comm_.policy_.clock);
    if (collective == Collective::bcast) {
      // Each root has a buffer of its own, as in programs: who writes to what the others have just read takes
      // it from their caches first.
      each.root = i % 2 == 0 ? 0 : comm_.size_ - 1;
      each.in = each.out = vectors_.data() + (i % 2 == 0 ? 0 : bytes / sizeof(float));
    }
    HEDDLE_TRY(comm_.run_choice(each, choice));
  }
  return slowest(std::chrono::duration<double>(now(comm_.policy_.clock) - start).count());
}

// An allreduce ends nowhere before all have begun. Bcasts would overtake each other, and show what they take
// in a row instead of what one takes: each begins after a barrier.
Result<Timing> Trials::apart(Collective collective, const Choice& choice, std::size_t bytes, int times) {
  const bool after_barrier = collective == Collective::bcast;
  const Job each = job(collective, bytes);
  const TimePoint start = std::chrono::steady_clock::now();
  TimePoint from = start;
  double timed = 0;
  for (int i = 0; i <= times; ++i) {
    if (after_barrier) HEDDLE_TRY(comm_.barrier());
    if (after_barrier || i == 1) from = std::chrono::steady_clock::now();
    HEDDLE_TRY(comm_.run_choice(each, choice));
    if (after_barrier && i > 0) timed += seconds_since(from);
  }
  if (!after_barrier) timed = seconds_since(from);
  double values[] = {timed, seconds_since(start)};
  HEDDLE_TRY(largest(values));
  return Timing{values[0], values[1]};
}

void Trials::forget() {
  comm_.executions_.clear();
}

Status Trials::largest(std::span<double> values) {
  const FoldFn fold = fold_kernel(DType::f64, Op::max);
  const Job job{Collective::allreduce, values.data(), values.data(), values.size(), sizeof(double), fold, 0};
  if (comm_.team_ == nullptr) return comm_.run_job(job);
  // Without a choice, since none may have been made yet.
  TeamOp op = CommunicatorImpl::team_op(job);
  return comm_.run_on_team(op);
}

Result<double> Trials::slowest(double time) {
  HEDDLE_TRY(largest({&time, 1}));
  return time;
}

}  // namespace heddle
