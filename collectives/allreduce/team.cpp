// Allreduce by the node's team: R. Graham, G. Shipman, EuroPVM/MPI 2008, LNCS 5205.
#include "collectives/collectives.hpp"
#include "schedule/builder.hpp"

namespace heddle {

Schedule allreduce::team(const TopologyView& topology, std::int32_t /*rank*/, const Shape& /*shape*/) {
  Builder b(Collective::allreduce, 1);
  b.in_order();
  if (topology.size() == 1) return std::move(b.copy_input()).finish();
  return std::move(b.team(StepKind::team_allreduce, Slot::input, 0, {0, 1})).finish();
}

}  // namespace heddle
