// Two-level allreduce by messages alone: T. Kielmann et al., PPoPP 1999.
#include <vector>

#include "collectives/collectives.hpp"
#include "collectives/hierarchy.hpp"
#include "collectives/trees.hpp"
#include "schedule/builder.hpp"

namespace heddle {

Schedule allreduce::leaders(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  const TopologyView nodes = TopologyView::flat(topology.nodes());
  const std::int32_t node = topology.node_of(rank);
  const Schedule inner =
      shape.chunks <= 1 ? recursive_doubling(nodes, node, {}) : split_allgather(nodes, node, {});
  Builder b(Collective::allreduce, inner.chunks);
  if (inner.in_order && nodes_are_runs(topology)) b.in_order();
  const Chunks all{0, inner.chunks};
  const std::vector<std::int32_t>& members = topology.members(node);
  const std::int32_t leader = members.front();
  if (rank != leader) {
    // The result lands where the input was read, so the send must be complete first.
    return std::move(b.send(leader, all, Slot::input).wait().recv(leader, all)).finish();
  }
  fold_members(b, members, all);
  std::vector<std::int32_t> leader_of;
  for (std::int32_t n = 0; n < topology.nodes(); ++n)
    leader_of.push_back(topology.members(n).front());
  b.embed(inner, leader_of);
  b.wait();
  for (const std::int32_t member : members) {
    if (member != leader) b.send(member, all);
  }
  return std::move(b).finish();
}

}  // namespace heddle
