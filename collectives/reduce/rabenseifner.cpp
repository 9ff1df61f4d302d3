// Rabenseifner's reduce: R. Rabenseifner, ICCS 2004, LNCS 3036.
#include "collectives/collectives.hpp"
#include "collectives/halving.hpp"
#include "collectives/trees.hpp"
#include "schedule/builder.hpp"

namespace heddle {

Schedule reduce::rabenseifner(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  const std::int32_t size = topology.size();
  const std::uint32_t pieces = pieces_per_block(shape, Participants(size).count);
  Builder b(Collective::reduce, halving_chunks(size, pieces));
  b.root(shape.root).in_order();
  halving_reduce(b, size, rank, shape.root, pieces);
  return std::move(b).finish();
}

}  // namespace heddle
