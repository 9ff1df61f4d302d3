// Bcast through leaders of domains: R. Graham, G. Shipman, EuroPVM/MPI 2008, LNCS 5205.
#include "collectives/collectives.hpp"
#include "collectives/trees.hpp"
#include "schedule/builder.hpp"

namespace heddle {

Schedule bcast::multi_leader(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  if (topology.domains(rank) == 1) return team(topology, rank, shape);
  const std::int32_t root_place = topology.member_of(TeamKind::domain, shape.root);
  const bool root_domain =
      topology.team_of(TeamKind::domain, rank) == topology.team_of(TeamKind::domain, shape.root);
  // The root leads its own domain where every domain has a rank in its place; else it hands over to the
  // first.
  const std::int32_t leader = root_place < topology.leaders(rank) ? root_place : 0;
  const std::int32_t first = topology.team(TeamKind::domain, shape.root)[static_cast<std::size_t>(leader)];
  const bool leads = topology.member_of(TeamKind::domain, rank) == leader;
  const bool alone = topology.team(TeamKind::domain, rank).size() == 1;
  const std::uint32_t pieces = pieces_per_block(shape, 1);
  Builder b(Collective::bcast, pieces);
  b.root(shape.root);
  b.repeat(pieces, 1, [&](Builder& piece) {
    if (root_domain && first != shape.root) {
      piece.team(StepKind::team_bcast, Slot::data, root_place, {0, 1}, TeamKind::domain);
    }
    if (leads) {
      piece.team(StepKind::team_bcast, Slot::data, topology.member_of(TeamKind::peers, first), {0, 1},
                 TeamKind::peers);
    }
    if (!alone && (!root_domain || first == shape.root)) {
      piece.team(StepKind::team_bcast, Slot::data, leader, {0, 1}, TeamKind::domain);
    }
  });
  return std::move(b).finish();
}

}  // namespace heddle
