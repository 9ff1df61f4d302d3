// Trying everything, for a tuning file: over any nodes, against the choice by price.
#include <algorithm>
#include <chrono>
#include <vector>

#include "comm/communicator_impl.hpp"
#include "comm/measured_choices.hpp"
#include "comm/trials.hpp"

namespace heddle {
namespace {

// From this size on what lost must not keep its scratch, which may be several vectors.
constexpr std::size_t kLargeScratch = std::size_t{1} << 20;

// The first is what serves this size's class where no setting, rule or measurement says otherwise.
std::vector<Choice> priced_candidates(const Selector& selector, Collective collective, std::size_t bytes) {
  const Choice cheapest = selector.cheapest(collective, middle_of_class(bytes), false);
  if (cheapest.algorithm == nullptr) return {};
  std::vector<Choice> all = selector.candidates(collective, bytes, false);
  const auto place =
      std::find_if(all.begin(), all.end(), [&](const Choice& c) { return same_choice(c, cheapest); });
  if (place == all.end()) {
    all.insert(all.begin(), cheapest);  // a shape that is suggested for the middle alone
  } else {
    std::rotate(all.begin(), place, place + 1);
  }
  for (Choice& choice : all)
    choice.price_ns = selector.price_of(choice, bytes);
  return all;
}

}  // namespace

Result<MeasuredChoices> CommunicatorImpl::try_all(SearchPlan plan) {
  const Turn turn(asked_);
  if (!broken_.ok()) return failed_before();
  if (size_ == 1)
    return Status(Code::invalid_argument, "there is one rank, so that there is nothing to choose");
  plan.ranks = size_;
  plan.nodes = topology().nodes();
  std::size_t most = 0;
  for (const TrialSize& size : plan.sizes)
    most = std::max(most, size.bytes);
  Trials trials(*this);
  HEDDLE_TRY(trials.make_room(most));
  Choice last;
  ChoiceTrial trial;
  trial.candidates = [&](Collective collective, std::size_t bytes) {
    return priced_candidates(selector_, collective, bytes);
  };
  trial.time = [&](Collective collective, const Choice& choice, std::size_t bytes,
                   int times) -> Result<Timing> {
    if (bytes >= kLargeScratch && !same_choice(choice, last)) trials.forget();
    last = choice;
    Timing timing;
    HEDDLE_TRY(with_memory([&]() -> Status {
      const Result<Timing> found = trials.apart(collective, choice, bytes, times);
      if (found.ok()) timing = found.value();
      return found.status();
    }));
    return timing;
  };
  const TimePoint start = std::chrono::steady_clock::now();
  const double core_start = connections_->process->core_seconds();
  Result<MeasuredChoices> measured = measure_choices(trial, plan);
  trials.forget();
  if (!measured.ok()) return measured;
  // Who sleeps while it waits needs no core then.
  const double missed = policy_.sleeps_on != nullptr
                            ? 0
                            : 1 - (connections_->process->core_seconds() - core_start) / seconds_since(start);
  const Result<double> without_core = trials.slowest(missed);
  if (!without_core.ok()) return without_core.status();
  measured->without_core = std::clamp(without_core.value(), 0.0, 1.0);
  return measured;
}

}  // namespace heddle
