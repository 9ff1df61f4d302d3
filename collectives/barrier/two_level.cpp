// Two-level barrier: the allreduce of nothing.
#include "collectives/collectives.hpp"

namespace heddle {

Schedule barrier::two_level(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  Schedule schedule = allreduce::two_level(topology, rank, {0, shape.radix});
  schedule.collective = Collective::barrier;
  return schedule;
}

}  // namespace heddle
