// Postal bcast: A. Bar-Noy, S. Kipnis, Mathematical Systems Theory 27(5), 1994.
#include <algorithm>
#include <vector>

#include "collectives/collectives.hpp"
#include "collectives/hierarchy.hpp"
#include "collectives/trees.hpp"
#include "schedule/builder.hpp"

namespace heddle {

Schedule bcast::postal(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  const Chunks all{0, 1};
  Builder b(Collective::bcast, 1);
  b.root(shape.root);
  const std::vector<std::int32_t> ranks = ranks_from(topology, shape.root);
  const auto rank_of = [&](std::int32_t place) { return ranks[static_cast<std::size_t>(place)]; };
  const PostalPlace place = postal_place(topology.size(), place_of(ranks, rank), std::max(2, shape.radix));
  if (place.parent >= 0) b.recv(rank_of(place.parent), all).wait();
  for (const std::int32_t child : place.children)
    b.send(rank_of(child), all);
  return std::move(b).finish();
}

}  // namespace heddle
