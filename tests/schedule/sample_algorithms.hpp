// Small correct collectives for testing the schedule readers, written here so that they do not change when
// the algorithms of the library do. Together they use every kind of step, every flag, lanes, repeats and open
// waits.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "schedule/builder.hpp"
#include "schedule/schedule.hpp"
#include "schedule/topology_view.hpp"

namespace heddle::test {

Schedule recursive_doubling(std::int32_t size, std::int32_t rank);  // size a power of two; in rank order
Schedule ring(std::int32_t size, std::int32_t rank);                // allreduce, rolled
Schedule binomial_bcast(std::int32_t size, std::int32_t rank, std::int32_t root);
// Bcast along 0, 1, 2, ...: pieces rotate through two scratch units, each forwarded while the next one
// arrives.
Schedule chain_bcast(std::int32_t size, std::int32_t rank, std::uint32_t pieces);
// Every rank sends its input to every other, on a lane per sender, and folds what it gets in rank order.
Schedule all_to_all_allreduce(std::int32_t size, std::int32_t rank);
// team_reduce onto member 0, recursive doubling among those, team_bcast; the number of nodes a power of two.
Schedule two_level_allreduce(const TopologyView& topology, std::int32_t rank);
Schedule team_only_allreduce();

// For a schedule in one expression: finished(Builder(...).send(...).wait()).
inline Schedule finished(Builder& builder) {
  return std::move(builder).finish();
}

struct Sample {
  std::string name;
  TopologyView topology;
  std::vector<Schedule> schedules;  // one per rank
};
inline std::ostream& operator<<(std::ostream& out, const Sample& sample) {
  return out << sample.name;
}
std::vector<Sample> samples();

inline std::function<Schedule(std::int32_t)> schedule_of(const std::vector<Schedule>& schedules) {
  return [&schedules](std::int32_t rank) { return schedules[static_cast<std::size_t>(rank)]; };
}

}  // namespace heddle::test
