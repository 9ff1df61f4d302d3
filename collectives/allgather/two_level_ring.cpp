// Rings of nodes, one for each place in them: M. Bayatpour, S. Chakraborty, H. Subramoni, X. Lu, D. K. Panda,
// SC'17; R. Thakur, R. Rabenseifner, W. Gropp, IJHPCA 19(1), 2005.
#include "collectives/collectives.hpp"
#include "collectives/trees.hpp"
#include "schedule/builder.hpp"

namespace heddle {
namespace {

bool are_alike(const TopologyView& topology) {
  for (std::int32_t node = 1; node < topology.nodes(); ++node) {
    if (topology.members(node).size() != topology.members(0).size()) return false;
  }
  return nodes_are_runs(topology);
}

}  // namespace

// In iteration i a rank gets, of its place, that of the node i + 1 before its own, and sends on what it got
// before, which the node then gathers.
Schedule allgather::two_level_ring(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  if (topology.nodes() == 1) return team(topology, rank, shape);
  if (!are_alike(topology) || topology.nodes() == topology.size()) return ring(topology, rank, shape);
  const std::int32_t size = topology.size();
  const std::int32_t nodes = topology.nodes();
  const auto members = static_cast<std::int32_t>(topology.members(0).size());
  const auto at = [&](std::int32_t distance) { return (rank + (nodes - distance) * members) % size; };
  const auto chunk = [&](std::int32_t distance) {
    return Chunks{static_cast<std::uint32_t>(at(distance)), 1};
  };
  const auto gather = [&](Builder& to, std::int32_t distance) {
    const auto first = static_cast<std::uint32_t>(at(distance) - rank % members);
    to.team(StepKind::team_allgather, Slot::data, 0, {first, static_cast<std::uint32_t>(members)});
  };
  const auto iteration = [&](Builder& to, std::int32_t i) {
    to.recv(at(1), chunk(i + 1));
    if (i > 0) to.wait(2);  // what came in the iteration before
    to.send(at(nodes - 1), chunk(i));
    gather(to, i);
  };
  Builder b(Collective::allgather, static_cast<std::uint32_t>(size));
  iteration(b, 0);
  b.repeat(static_cast<std::uint32_t>(nodes - 2), -members, [&](Builder& to) { iteration(to, 1); });
  b.wait(1);
  gather(b, nodes - 1);
  return std::move(b).finish();
}

}  // namespace heddle
