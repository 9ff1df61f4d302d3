// Two-level allreduce: T. Kielmann, R. Hofman, H. Bal, A. Plaat, R. Bhoedjang, PPoPP 1999.
#include <vector>

#include "collectives/collectives.hpp"
#include "collectives/trees.hpp"
#include "schedule/builder.hpp"

namespace heddle {
namespace {

Schedule among_leaders(std::int32_t nodes, std::int32_t node, const Shape& shape) {
  const TopologyView leaders = TopologyView::flat(nodes);
  if (shape.chunks <= 1) return allreduce::recursive_doubling(leaders, node, shape);
  if (shape.chunks == 2) return allreduce::rabenseifner(leaders, node, {0, 2, 1});
  return allreduce::ring(leaders, node, {0, 2, shape.chunks - 2});
}

}  // namespace

Schedule allreduce::two_level(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  if (topology.nodes() == 1) return team(topology, rank, shape);
  const std::int32_t node = topology.node_of(rank);
  const Schedule inner = among_leaders(topology.nodes(), node, shape);
  Builder b(Collective::allreduce, inner.chunks);
  if (inner.in_order && nodes_are_runs(topology)) b.in_order();
  const Chunks all{0, inner.chunks};
  const bool alone = topology.members(node).size() == 1;
  if (alone) {
    b.copy_input();
  } else {
    b.team(StepKind::team_reduce, Slot::input, 0, all);
  }
  if (topology.member_index(rank) == 0) {
    std::vector<std::int32_t> leader_of;
    for (std::int32_t n = 0; n < topology.nodes(); ++n)
      leader_of.push_back(topology.members(n).front());
    b.embed(inner, leader_of);
  }
  if (!alone) b.team(StepKind::team_bcast, Slot::data, 0, all);
  return std::move(b).finish();
}

}  // namespace heddle
