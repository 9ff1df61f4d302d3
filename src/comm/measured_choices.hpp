// Which algorithm serves which size best within a node, found by trying all of them.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/status.hpp"
#include "select/selector.hpp"

namespace heddle {

// What trying needs of a communicator. Every rank gets the same answers, so that all decide alike.
struct ChoiceTrial {
  // The first is the one that the others must clearly beat.
  std::function<std::vector<Choice>(Collective collective, std::size_t bytes)> candidates;
  // Seconds that the slowest rank takes for `times` collectives.
  std::function<Result<double>(Collective collective, const Choice& choice, std::size_t bytes, int times)>
      time;
  std::chrono::microseconds budget{100'000};
};

struct MeasuredChoices {
  Tuning tuning;         // rules for this number of ranks on one node
  bool complete = true;  // false: the budget was spent before the largest sizes
};

// Collective. Every candidate runs once; then the first and the three fastest of those within half of the fastest run by
// turns. The one with the least median replaces the first only when it took at least 7% less in four turns of five. A
// failure of `time` ends it.
Result<MeasuredChoices> measure_choices(const ChoiceTrial& trial, std::int32_t ranks,
                                        const std::vector<Collective>& collectives);

}  // namespace heddle
