// Bruck's allgather: J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal, D. Weathersby, IEEE TPDS 8(11), 1997.
#include "collectives/allgather/bruck.hpp"

#include "collectives/collectives.hpp"

namespace heddle {

Schedule allgather::bruck(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  const std::int32_t size = topology.size();
  Builder b(Collective::allgather, static_cast<std::uint32_t>(size));
  bruck_steps(
      b, size, rank, std::clamp(shape.radix, 2, std::max(2, size)),
      [](std::int32_t first, std::int32_t count) {
        return Chunks{static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(count)};
      },
      [](std::int32_t block) { return block; });
  return std::move(b).finish();
}

}  // namespace heddle
