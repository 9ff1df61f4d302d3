// Two-level bcast: T. Kielmann, R. Hofman, H. Bal, A. Plaat, R. Bhoedjang, PPoPP 1999.
#include "collectives/collectives.hpp"
#include "collectives/hierarchy.hpp"
#include "collectives/trees.hpp"
#include "schedule/builder.hpp"

namespace heddle {
namespace {

// Its messages do not fall into lanes.
Schedule scattered(const Hierarchy& nodes, const Shape& shape) {
  const Schedule inner = bcast::scatter_allgather(TopologyView::flat(nodes.size()), nodes.place(), {0, 2, 1});
  Builder b(Collective::bcast, inner.chunks);
  b.root(shape.root);
  if (nodes.leads()) b.embed(inner, nodes.ranks());
  nodes.spread(b, 0, inner.chunks);
  return std::move(b).finish();
}

}  // namespace

Schedule bcast::two_level(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  if (topology.nodes() == 1) return team(topology, rank, shape);
  const std::uint32_t leaders = shape.chunks == 2 ? 1 : leaders_of(topology, shape);
  const Hierarchy nodes = Hierarchy::of_nodes_from(topology, rank, leaders, shape.root);
  if (shape.chunks <= 1) return knomial_bcast(nodes, shape.radix, shape.root);
  if (shape.chunks == 2) return scattered(nodes, shape);
  const std::uint32_t pieces =
      pieces_per_block({0, 2, shape.chunks - 2}, 2 * static_cast<std::int32_t>(leaders));
  return double_binary_tree_bcast(nodes, pieces, shape.root);
}

}  // namespace heddle
