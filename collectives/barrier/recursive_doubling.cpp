// Barrier by recursive doubling: R. Thakur, R. Rabenseifner, W. Gropp, IJHPCA 19(1), 2005.
#include "collectives/collectives.hpp"
#include "schedule/builder.hpp"

namespace heddle {

Schedule barrier::recursive_doubling(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  Builder b(Collective::barrier, 1);
  b.in_order();
  recursive_doubling_steps(b, topology.size(), rank, shape.radix);
  return std::move(b).finish();
}

}  // namespace heddle
