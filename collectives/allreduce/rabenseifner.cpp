// Rabenseifner's allreduce: R. Rabenseifner, ICCS 2004, LNCS 3036; in more parts than halves: M. Ruefenacht,
// M. Bull, S. Booth, Parallel Computing 69, 2017.
#include "collectives/collectives.hpp"
#include "collectives/halving.hpp"
#include "collectives/trees.hpp"
#include "schedule/builder.hpp"

namespace heddle {

Schedule allreduce::rabenseifner(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  const std::int32_t size = topology.size();
  if (shape.radix > 2) {
    Builder b(Collective::allreduce, multiway_chunks(size, shape.radix));
    b.in_order();
    multiway_allreduce(b, size, rank, shape.radix);
    return std::move(b).finish();
  }
  const std::uint32_t pieces = pieces_per_block(shape, Participants(size).count);
  Builder b(Collective::allreduce, halving_chunks(size, pieces));
  b.in_order();
  halving_allreduce(b, size, rank, pieces, kNearestFirst);
  return std::move(b).finish();
}

}  // namespace heddle
