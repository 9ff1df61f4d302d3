// Trying everything, for a tuning file: over any nodes, against the choice by price.
#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "base/clock.hpp"
#include "comm/communicator_impl.hpp"
#include "comm/measured_choices.hpp"

namespace heddle {
namespace {

// From this size on what lost must not keep its scratch, which may be several vectors.
constexpr std::size_t kLargeScratch = std::size_t{1} << 20;

}  // namespace

// Room for an input and a result, on all ranks or on none.
Status CommunicatorImpl::make_room(std::vector<float>& buffer, std::size_t bytes) {
  double missing = 0;
  try {
    buffer.resize(2 * bytes / sizeof(float));
  } catch (const std::exception&) {
    missing = 1;
  }
  HEDDLE_TRY(largest({&missing, 1}));
  if (missing == 0) return {};
  return Status(Code::out_of_memory,
                fmt::format("a rank has no memory for two vectors of {} bytes, the largest size", bytes));
}

// The first is what serves this size's class where no setting, rule or measurement says otherwise.
std::vector<Choice> CommunicatorImpl::priced_candidates(Collective collective, std::size_t bytes) const {
  const Choice cheapest = selector_.cheapest(collective, middle_of_class(bytes), false);
  if (cheapest.algorithm == nullptr) return {};
  std::vector<Choice> all = selector_.candidates(collective, bytes, false);
  const auto place =
      std::find_if(all.begin(), all.end(), [&](const Choice& c) { return same_choice(c, cheapest); });
  if (place == all.end()) {
    all.insert(all.begin(), cheapest);  // a shape that is suggested for the middle alone
  } else {
    std::rotate(all.begin(), place, place + 1);
  }
  for (Choice& choice : all)
    choice.price_ns = selector_.price_of(choice, bytes);
  return all;
}

// An allreduce ends nowhere before all have begun. Bcasts would overtake each other, and show what they take in a row
// instead of what one takes: each begins after a barrier.
Result<Timing> CommunicatorImpl::time_apart(const Job& job, const Choice& choice, int times) {
  const bool apart = job.collective == Collective::bcast;
  const TimePoint start = std::chrono::steady_clock::now();
  TimePoint from = start;
  double timed = 0;
  for (int i = 0; i <= times; ++i) {
    if (apart) HEDDLE_TRY(barrier());
    if (apart || i == 1) from = std::chrono::steady_clock::now();
    HEDDLE_TRY(run_choice(job, choice));
    if (apart && i > 0) timed += seconds_since(from);
  }
  if (!apart) timed = seconds_since(from);
  double values[] = {timed, seconds_since(start)};
  HEDDLE_TRY(largest(values));
  return Timing{values[0], values[1]};
}

Result<MeasuredChoices> CommunicatorImpl::try_all(SearchPlan plan) {
  const Turn turn(asked_);
  if (!broken_.ok()) return broken_;
  if (size_ == 1)
    return Status(Code::invalid_argument, "there is one rank, so that there is nothing to choose");
  plan.ranks = size_;
  plan.nodes = topology().nodes();
  std::size_t most = 0;
  for (const TrialSize& size : plan.sizes)
    most = std::max(most, size.bytes);
  std::vector<float> buffer;
  HEDDLE_TRY(make_room(buffer, most));
  Choice last;
  ChoiceTrial trial;
  trial.candidates = [&](Collective collective, std::size_t bytes) {
    return priced_candidates(collective, bytes);
  };
  trial.time = [&](Collective collective, const Choice& choice, std::size_t bytes,
                   int times) -> Result<Timing> {
    if (bytes >= kLargeScratch && !same_choice(choice, last)) executions_.clear();
    last = choice;
    Timing timing;
    HEDDLE_TRY(with_memory([&]() -> Status {
      const Result<Timing> found = time_apart(trial_job(collective, bytes, buffer), choice, times);
      if (found.ok()) timing = found.value();
      return found.status();
    }));
    return timing;
  };
  Result<MeasuredChoices> measured = measure_choices(trial, plan);
  executions_.clear();
  return measured;
}

}  // namespace heddle
