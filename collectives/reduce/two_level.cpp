// Two-level reduce: T. Kielmann, R. Hofman, H. Bal, A. Plaat, R. Bhoedjang, PPoPP 1999.
#include <cstddef>
#include <vector>

#include "collectives/collectives.hpp"
#include "collectives/hierarchy.hpp"
#include "collectives/trees.hpp"
#include "schedule/builder.hpp"

namespace heddle {
namespace {

// Folds in the order of nodes, whichever has the root.
Schedule in_order_of_nodes(const TopologyView& topology, const Hierarchy& nodes, std::int32_t rank,
                           const Shape& shape) {
  const std::int32_t size = topology.nodes();
  const std::int32_t root = shape.root;
  const std::int32_t root_node = topology.node_of(root);
  const auto build = shape.chunks <= 1 ? reduce::binomial : reduce::rabenseifner;
  const Schedule inner = build(TopologyView::flat(size), topology.node_of(rank), {root_node});
  Builder b(Collective::reduce, inner.chunks);
  b.root(root);
  if (nodes_are_runs(topology)) b.in_order();
  nodes.fold(b, 0, inner.chunks);
  if (!nodes.leads()) return std::move(b).finish();
  std::vector<std::int32_t> leader_of(static_cast<std::size_t>(size));
  for (std::int32_t node = 0; node < size; ++node)
    leader_of[static_cast<std::size_t>(node)] = nodes.rank_at((node - root_node + size) % size);
  b.embed(inner, leader_of);
  return std::move(b).finish();
}

}  // namespace

Schedule reduce::two_level(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  if (topology.nodes() == 1) return team(topology, rank, shape);
  const Hierarchy nodes = Hierarchy::of_nodes_from(topology, rank, 1, shape.root);
  const bool in_order = topology.node_of(shape.root) == 0 && nodes_are_runs(topology);
  if (shape.chunks == 2 || (shape.chunks <= 1 && shape.radix <= 2))
    return in_order_of_nodes(topology, nodes, rank, shape);
  if (shape.chunks <= 1) return knomial_reduce(nodes, shape.radix, shape.root, in_order);
  return double_binary_tree_reduce(nodes, pieces_per_block({0, 2, shape.chunks - 2}, 2), shape.root,
                                   in_order);
}

}  // namespace heddle
