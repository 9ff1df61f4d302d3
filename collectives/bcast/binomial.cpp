// Binomial bcast: R. Thakur, R. Rabenseifner, W. Gropp, IJHPCA 19(1), 2005.
#include "collectives/collectives.hpp"

namespace heddle {

Schedule bcast::binomial(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  return knomial(topology, rank, {shape.root, 2, 1});
}

}  // namespace heddle
