#include "collectives/trees.hpp"

#include <algorithm>

namespace heddle {

KnomialPlace knomial_place(std::int32_t size, std::int32_t v, std::int32_t radix) {
  KnomialPlace place;
  std::int64_t weight = 1;
  for (; weight < size && v / weight % radix == 0; weight *= radix) {
    std::vector<std::int32_t> level;
    for (std::int64_t child = v + weight; child < std::min<std::int64_t>(size, v + weight * radix);
         child += weight) {
      level.push_back(static_cast<std::int32_t>(child));
    }
    if (!level.empty()) place.children.push_back(std::move(level));
  }
  if (v != 0) place.parent = static_cast<std::int32_t>(v - v / weight % radix * weight);
  place.subtree = static_cast<std::int32_t>(std::min<std::int64_t>(weight, size - v));
  return place;
}

InOrderPlace in_order_place(std::int32_t size, std::int32_t position) {
  const auto parent_of = [&](std::int32_t node) {
    const std::int32_t bit = node & -node;
    const std::int32_t above = (node ^ bit) | (bit << 1);
    return above <= size ? above : node ^ bit;
  };
  InOrderPlace place;
  const std::int32_t root = in_order_root(size);
  for (std::int32_t node = position; node != root; node = parent_of(node)) {
    if (node == position) place.parent = parent_of(node);
    ++place.depth;
  }
  const std::int32_t half = (position & -position) / 2;
  if (half > 0) place.left = position - half;
  for (std::int32_t step = half; step > 0 && place.right < 0; step /= 2) {
    if (position + step <= size) place.right = position + step;
  }
  return place;
}

bool nodes_are_runs(const TopologyView& topology) {
  for (std::int32_t rank = 1; rank < topology.size(); ++rank) {
    if (topology.node_of(rank) < topology.node_of(rank - 1)) return false;
  }
  return true;
}

}  // namespace heddle
