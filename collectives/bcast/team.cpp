// Bcast by the node's team: R. Graham, G. Shipman, EuroPVM/MPI 2008, LNCS 5205.
#include "collectives/collectives.hpp"
#include "schedule/builder.hpp"

namespace heddle {

Schedule bcast::team(const TopologyView& topology, std::int32_t /*rank*/, const Shape& shape) {
  Builder b(Collective::bcast, 1);
  b.root(shape.root);
  if (topology.size() > 1)
    b.team(StepKind::team_bcast, Slot::data, topology.member_index(shape.root), {0, 1});
  return std::move(b).finish();
}

}  // namespace heddle
