// Chain reduce over nodes: J. Watts, R. van de Geijn 1995; T. Kielmann et al., PPoPP 1999.
#include "collectives/collectives.hpp"
#include "collectives/hierarchy.hpp"
#include "collectives/trees.hpp"

namespace heddle {

Schedule reduce::two_level_chain(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  if (topology.nodes() == 1) return team(topology, rank, shape);
  const bool in_order = topology.node_of(shape.root) == 0 && nodes_are_runs(topology);
  return chain_reduce(Hierarchy::of_nodes_from(topology, rank, 1, shape.root), pieces_per_block(shape, 1),
                      shape.root, in_order);
}

}  // namespace heddle
