// Multi-leader allreduce: M. Bayatpour, S. Chakraborty, H. Subramoni, X. Lu, D. K. Panda, SC'17.
#include "collectives/collectives.hpp"
#include "collectives/trees.hpp"
#include "schedule/builder.hpp"

namespace heddle {
namespace {

// Domain 0 has the lowest ranks, domain 1 the next, and so on.
bool domains_are_runs(const TopologyView& topology) {
  for (std::int32_t rank = 1; rank < topology.size(); ++rank) {
    if (topology.team_of(TeamKind::domain, rank) < topology.team_of(TeamKind::domain, rank - 1)) return false;
  }
  return true;
}

}  // namespace

Schedule allreduce::multi_leader(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  if (topology.domains(rank) == 1) return team(topology, rank, shape);
  const bool one = shape.chunks <= 1;
  const auto leaders = one ? 1U : static_cast<std::uint32_t>(topology.leaders(rank));
  const std::uint32_t pieces = one ? 1U : pieces_per_block({0, 2, shape.chunks - 1}, topology.leaders(rank));
  const auto place = static_cast<std::uint32_t>(topology.member_of(TeamKind::domain, rank));
  const bool alone = topology.team(TeamKind::domain, rank).size() == 1;
  Builder b(Collective::allreduce, pieces * leaders);
  if (domains_are_runs(topology)) b.in_order();
  b.repeat(pieces, static_cast<std::int32_t>(leaders), [&](Builder& piece) {
    for (std::uint32_t k = 0; k < leaders; ++k) {
      if (alone) {
        piece.copy_input({k, 1});
      } else {
        piece.team(StepKind::team_reduce, Slot::input, static_cast<std::int32_t>(k), {k, 1},
                   TeamKind::domain);
      }
    }
    if (place < leaders) piece.team(StepKind::team_allreduce, Slot::data, 0, {place, 1}, TeamKind::peers);
    for (std::uint32_t k = 0; k < leaders && !alone; ++k) {
      piece.team(StepKind::team_bcast, Slot::data, static_cast<std::int32_t>(k), {k, 1}, TeamKind::domain);
    }
  });
  return std::move(b).finish();
}

}  // namespace heddle
