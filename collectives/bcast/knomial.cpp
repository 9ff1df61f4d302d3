// k-nomial bcast: R. Karp, A. Sahay, E. Santos, K. Schauser, SPAA 1993.
#include <algorithm>

#include "collectives/collectives.hpp"
#include "collectives/trees.hpp"
#include "schedule/builder.hpp"

namespace heddle {

Schedule bcast::knomial(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  const Chunks all{0, 1};
  const std::int32_t size = topology.size();
  Builder b(Collective::bcast, 1);
  b.root(shape.root);
  const auto rank_of = [&](std::int32_t v) { return (v + shape.root) % size; };
  const KnomialPlace place = knomial_place(size, (rank - shape.root + size) % size, std::max(2, shape.radix));
  if (place.parent >= 0) b.recv(rank_of(place.parent), all).wait();
  // Whoever has the most ranks below it first.
  for (auto level = place.children.rbegin(); level != place.children.rend(); ++level) {
    for (const std::int32_t child : *level)
      b.send(rank_of(child), all);
  }
  return std::move(b).finish();
}

}  // namespace heddle
