// Two-level reduce by messages alone: T. Kielmann et al., PPoPP 1999.
#include <vector>

#include "collectives/collectives.hpp"
#include "collectives/hierarchy.hpp"
#include "collectives/trees.hpp"
#include "schedule/builder.hpp"

namespace heddle {

Schedule reduce::leaders(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  const std::int32_t node = topology.node_of(rank);
  const std::int32_t root = shape.root;
  const std::int32_t root_node = topology.node_of(root);
  const auto build = shape.chunks <= 1 ? binomial : rabenseifner;
  const Schedule inner = build(TopologyView::flat(topology.nodes()), node, {root_node});
  Builder b(Collective::reduce, inner.chunks);
  b.root(root);
  if (nodes_are_runs(topology)) b.in_order();
  const Chunks all{0, inner.chunks};
  const std::vector<std::int32_t>& members = topology.members(node);
  const std::int32_t leader = members.front();
  if (rank != leader) {
    b.send(leader, all, Slot::input).wait();
    // In place the result lands where the input was read, so the send must be complete first.
    if (rank == root) b.recv(leader, all);
    return std::move(b).finish();
  }
  fold_members(b, members, all);
  std::vector<std::int32_t> leader_of;
  for (std::int32_t n = 0; n < topology.nodes(); ++n)
    leader_of.push_back(topology.members(n).front());
  b.embed(inner, leader_of);
  if (node == root_node && leader != root) b.wait().send(root, all);
  return std::move(b).finish();
}

}  // namespace heddle
