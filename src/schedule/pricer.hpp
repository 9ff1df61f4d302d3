// The pricer: what a schedule costs, by running it over a LogGP-style model of the machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/cost.hpp"
#include "schedule/schedule.hpp"
#include "schedule/topology_view.hpp"

namespace heddle {

// One level of the machine. A message of n bytes between ranks that first share level l occupies the sender for
// `overhead_ns`, the link of sender and of receiver for gap.at(n), and arrives `latency_ns` later.
struct LevelCost {
  double latency_ns = 0;
  double overhead_ns = 0;
  LinearCost gap;
};

// levels[0]: both ranks on one node; levels[k]: ranks whose groups first agree at level k of the topology view; the last
// entry serves everything beyond.
struct CostModel {
  std::vector<LevelCost> levels;
  LinearCost fold;         // reducing n bytes of one operand into another
  LinearCost copy;         // copying n bytes
  LinearCost team_small;   // a team verb per member, small vectors: one cache-line exchange
  LinearCost team_large;   // a team verb on n bytes, staged: per byte of the vector and member
};

using ScheduleOf = std::function<Schedule(std::int32_t rank)>;

// Nanoseconds until the last rank has finished, when all start together, for a vector of `bytes`.
double price(const TopologyView& topology, const ScheduleOf& schedule_of, std::size_t bytes, const CostModel& model);

}  // namespace heddle
