// k-nomial bcast: R. Karp, A. Sahay, E. Santos, K. Schauser, SPAA 1993.
#include <algorithm>

#include "collectives/collectives.hpp"
#include "collectives/hierarchy.hpp"
#include "collectives/trees.hpp"
#include "schedule/builder.hpp"

namespace heddle {

Schedule knomial_bcast(const Hierarchy& nodes, std::int32_t radix, std::int32_t root) {
  Builder b(Collective::bcast, nodes.leaders());
  b.root(root);
  // At the root's node other leaders than the root have nothing to send before it spreads.
  const bool at_once = nodes.place() == 0 && nodes.leaders() > 1;
  if (at_once) nodes.spread(b, 0);
  if (nodes.leads()) {
    const KnomialPlace place = knomial_place(nodes.size(), nodes.place(), std::max(2, radix));
    if (place.parent >= 0) b.recv(nodes.rank_at(place.parent), nodes.lane_chunks(0)).wait();
    // Whoever has the most below it first.
    for (auto level = place.children.rbegin(); level != place.children.rend(); ++level) {
      for (const std::int32_t child : *level)
        b.send(nodes.rank_at(child), nodes.lane_chunks(0));
    }
  }
  if (!at_once) nodes.spread(b, 0);
  return std::move(b).finish();
}

Schedule bcast::knomial(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  return knomial_bcast(Hierarchy::of_ranks(topology, rank, shape.root), shape.radix, shape.root);
}

}  // namespace heddle
