// Allreduce up and down a k-nomial tree: R. Karp, A. Sahay, E. Santos, K. Schauser, SPAA 1993.
#include <algorithm>

#include "collectives/collectives.hpp"
#include "collectives/trees.hpp"
#include "schedule/builder.hpp"

namespace heddle {

Schedule allreduce::knomial(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  const Chunks all{0, 1};
  Builder b(Collective::allreduce, 1);
  b.in_order();
  const KnomialPlace place = knomial_place(topology.size(), rank, std::max(2, shape.radix));
  const bool leaf = place.children.empty();
  if (!leaf || place.parent < 0) b.copy_input();
  // Subtrees are runs of ranks: folded lowest level first, and in order within a level, they are in rank
  // order.
  for (const auto& level : place.children) {
    const auto width = static_cast<std::uint32_t>(level.size());
    for (std::uint32_t j = 0; j < width; ++j)
      b.recv_scratch(level[j], all, j);
    for (std::uint32_t j = 0; j < width; ++j)
      b.wait(width - 1 - j).reduce(all, j);
  }
  if (place.parent >= 0) {
    b.send(place.parent, all, leaf ? Slot::input : Slot::data).wait();
    b.recv(place.parent, all).wait();
  }
  for (auto level = place.children.rbegin(); level != place.children.rend(); ++level) {
    for (const std::int32_t child : *level)
      b.send(child, all);
  }
  return std::move(b).finish();
}

}  // namespace heddle
