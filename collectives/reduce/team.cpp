// Reduce by the node's team: R. Graham, G. Shipman, EuroPVM/MPI 2008, LNCS 5205.
#include "collectives/collectives.hpp"
#include "schedule/builder.hpp"

namespace heddle {

Schedule reduce::team(const TopologyView& topology, std::int32_t /*rank*/, const Shape& shape) {
  Builder b(Collective::reduce, 1);
  b.root(shape.root).in_order();
  if (topology.size() == 1) return std::move(b.copy_input()).finish();
  b.team(StepKind::team_reduce, Slot::input, topology.member_index(shape.root), {0, 1});
  return std::move(b).finish();
}

}  // namespace heddle
