// Allgather by the node's team: R. Graham, G. Shipman, EuroPVM/MPI 2008, LNCS 5205.
#include "collectives/collectives.hpp"
#include "schedule/builder.hpp"

namespace heddle {

Schedule allgather::team(const TopologyView& topology, std::int32_t /*rank*/, const Shape& /*shape*/) {
  const auto size = static_cast<std::uint32_t>(topology.size());
  Builder b(Collective::allgather, size);
  if (size > 1) b.team(StepKind::team_allgather, Slot::data, 0, {0, size});
  return std::move(b).finish();
}

}  // namespace heddle
