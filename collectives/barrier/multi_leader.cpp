// Barrier through leaders of domains: the allreduce of nothing.
#include "collectives/collectives.hpp"

namespace heddle {

Schedule barrier::multi_leader(const TopologyView& topology, std::int32_t rank, const Shape& /*shape*/) {
  Schedule schedule = allreduce::multi_leader(topology, rank, Shape{});
  schedule.collective = Collective::barrier;
  return schedule;
}

}  // namespace heddle
