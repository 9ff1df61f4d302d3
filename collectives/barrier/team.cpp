// Barrier by the node's team: a team allreduce of no elements, which is its flags alone.
#include "collectives/collectives.hpp"
#include "schedule/builder.hpp"

namespace heddle {

Schedule barrier::team(const TopologyView& topology, std::int32_t /*rank*/, const Shape& /*shape*/) {
  Builder b(Collective::barrier, 1);
  b.in_order();
  if (topology.size() == 1) return std::move(b.copy_input()).finish();
  return std::move(b.team(StepKind::team_allreduce, Slot::input, 0, {0, 1})).finish();
}

}  // namespace heddle
