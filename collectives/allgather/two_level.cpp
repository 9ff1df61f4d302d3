// Two-level allgather: T. Kielmann, R. Hofman, H. Bal, A. Plaat, R. Bhoedjang, PPoPP 1999; J. Bruck et al.,
// IEEE TPDS 8(11), 1997.
#include <vector>

#include "collectives/allgather/bruck.hpp"
#include "collectives/collectives.hpp"
#include "collectives/trees.hpp"

namespace heddle {

Schedule allgather::two_level(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  if (topology.nodes() == 1) return team(topology, rank, shape);
  if (!nodes_are_runs(topology)) return bruck(topology, rank, shape);
  const auto ranks = static_cast<std::uint32_t>(topology.size());
  const std::int32_t nodes = topology.nodes();
  const std::int32_t node = topology.node_of(rank);
  const std::vector<std::int32_t>& members = topology.members(node);
  const auto size = static_cast<std::uint32_t>(members.size());
  const auto first_of = [&](std::int32_t n) {
    return n == nodes ? ranks : static_cast<std::uint32_t>(topology.members(n).front());
  };
  Builder b(Collective::allgather, ranks);
  if (size > 1) b.team(StepKind::team_allgather, Slot::data, 0, {first_of(node), size});
  if (rank == members.front()) {
    bruck_steps(
        b, nodes, node, std::clamp(shape.radix, 2, nodes),
        [&](std::int32_t first, std::int32_t count) {
          return Chunks{first_of(first), first_of(first + count) - first_of(first)};
        },
        [&](std::int32_t n) { return topology.members(n).front(); });
  }
  // The node's own once more, which takes less than a second verb.
  if (size > 1) b.team(StepKind::team_bcast, Slot::data, 0, {0, ranks});
  return std::move(b).finish();
}

}  // namespace heddle
