// Pipelined chain of nodes: J. Watts, R. van de Geijn 1995; T. Kielmann et al., PPoPP 1999; leaders as M.
// Bayatpour et al., SC'17.
#include "collectives/collectives.hpp"
#include "collectives/hierarchy.hpp"
#include "collectives/trees.hpp"

namespace heddle {

Schedule bcast::two_level_chain(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  if (topology.nodes() == 1) return team(topology, rank, shape);
  const std::uint32_t leaders = leaders_of(topology, shape);
  return chain_bcast(Hierarchy::of_nodes_from(topology, rank, leaders, shape.root),
                     pieces_per_block(shape, static_cast<std::int32_t>(leaders)), shape.root);
}

}  // namespace heddle
