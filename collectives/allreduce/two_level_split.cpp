// Two-level allreduce whose leaders exchange directly: M. Bayatpour et al., SC'17, with C. Renggli et al.,
// SC'19, between nodes.
#include "collectives/collectives.hpp"
#include "collectives/hierarchy.hpp"
#include "schedule/builder.hpp"

namespace heddle {

Schedule allreduce::two_level_split(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  if (topology.nodes() == 1) return team(topology, rank, shape);
  const std::uint32_t leaders = leaders_of(topology, shape);
  const Hierarchy nodes = Hierarchy::of_nodes(topology, rank, leaders);
  const Schedule inner = split_allgather(TopologyView::flat(nodes.size()), nodes.place(), {});
  Builder b(Collective::allreduce, leaders * inner.chunks);
  nodes.fold(b, 0, inner.chunks);
  if (nodes.leads()) b.embed(inner, nodes.ranks(), nodes.lane_chunks(0, inner.chunks).first);
  b.wait();
  nodes.spread(b, 0, inner.chunks);
  return std::move(b).finish();
}

}  // namespace heddle
