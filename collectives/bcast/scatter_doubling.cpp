// Scatter and recursive doubling: R. Thakur et al., IJHPCA 19(1), 2005; in more parts than halves: M.
// Ruefenacht, M. Bull, S. Booth, Parallel Computing 69, 2017.
#include <algorithm>

#include "collectives/collectives.hpp"
#include "collectives/halving.hpp"
#include "collectives/hierarchy.hpp"
#include "schedule/builder.hpp"

namespace heddle {

Schedule bcast::scatter_doubling(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  const std::int32_t radix = std::max(2, shape.radix);
  Builder b(Collective::bcast, multiway_chunks(topology.size(), radix));
  b.root(shape.root);
  const Places places(topology, shape.root);
  multiway_bcast(b, places, places.place_of(rank), radix);
  return std::move(b).finish();
}

}  // namespace heddle
