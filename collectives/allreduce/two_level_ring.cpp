// Ring of nodes with several leaders each: M. Bayatpour, S. Chakraborty, H. Subramoni, X. Lu, D. K. Panda,
// SC'17.
#include "collectives/collectives.hpp"
#include "collectives/hierarchy.hpp"
#include "collectives/trees.hpp"

namespace heddle {

Schedule allreduce::two_level_ring(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  if (topology.nodes() == 1) return team(topology, rank, shape);
  const std::uint32_t leaders = leaders_of(topology, shape);
  const std::uint32_t pieces = pieces_per_block(shape, topology.nodes() * static_cast<std::int32_t>(leaders));
  return ring_allreduce(Hierarchy::of_nodes(topology, rank, leaders), pieces);
}

}  // namespace heddle
