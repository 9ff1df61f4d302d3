// Two-level bcast: T. Kielmann, R. Hofman, H. Bal, A. Plaat, R. Bhoedjang, PPoPP 1999.
#include <vector>

#include "collectives/collectives.hpp"
#include "schedule/builder.hpp"

namespace heddle {
namespace {

Schedule among_leaders(std::int32_t nodes, std::int32_t node, std::int32_t root_node, const Shape& shape) {
  const TopologyView leaders = TopologyView::flat(nodes);
  if (shape.chunks <= 1) return bcast::knomial(leaders, node, {root_node, shape.radix, 1});
  if (shape.chunks == 2) return bcast::scatter_allgather(leaders, node, {root_node, 2, 1});
  return bcast::double_binary_tree(leaders, node, {root_node, 2, shape.chunks - 2});
}

}  // namespace

Schedule bcast::two_level(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  if (topology.nodes() == 1) return team(topology, rank, shape);
  const std::int32_t node = topology.node_of(rank);
  const std::int32_t root_node = topology.node_of(shape.root);
  // The root already has the vector, so it acts for its node.
  std::vector<std::int32_t> leader_of;
  for (std::int32_t n = 0; n < topology.nodes(); ++n)
    leader_of.push_back(n == root_node ? shape.root : topology.members(n).front());
  const std::int32_t leader = leader_of[static_cast<std::size_t>(node)];

  const Schedule inner = among_leaders(topology.nodes(), node, root_node, shape);
  Builder b(Collective::bcast, inner.chunks);
  b.root(shape.root);
  if (rank == leader) b.embed(inner, leader_of);
  if (topology.members(node).size() > 1)
    b.team(StepKind::team_bcast, Slot::data, topology.member_index(leader), {0, inner.chunks});
  return std::move(b).finish();
}

}  // namespace heddle
