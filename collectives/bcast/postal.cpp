// Postal bcast: A. Bar-Noy, S. Kipnis, Mathematical Systems Theory 27(5), 1994.
#include <algorithm>

#include "collectives/collectives.hpp"
#include "collectives/hierarchy.hpp"
#include "collectives/trees.hpp"
#include "schedule/builder.hpp"

namespace heddle {

Schedule bcast::postal(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  const Chunks all{0, 1};
  Builder b(Collective::bcast, 1);
  b.root(shape.root);
  const Places places(topology, shape.root);
  const PostalPlace place = postal_place(topology.size(), places.place_of(rank), std::max(2, shape.radix));
  if (place.parent >= 0) b.recv(places.rank_at(place.parent), all).wait();
  for (const std::int32_t child : place.children)
    b.send(places.rank_at(child), all);
  return std::move(b).finish();
}

}  // namespace heddle
