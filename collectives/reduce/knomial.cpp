// k-nomial reduce: R. Karp, A. Sahay, E. Santos, K. Schauser, SPAA 1993.
#include <algorithm>
#include <vector>

#include "collectives/collectives.hpp"
#include "collectives/hierarchy.hpp"
#include "collectives/trees.hpp"
#include "schedule/builder.hpp"

namespace heddle {

Schedule knomial_reduce(const Hierarchy& nodes, std::int32_t radix, std::int32_t root, bool in_order) {
  const Chunks all{0, 1};
  Builder b(Collective::reduce, 1);
  b.root(root);
  if (in_order) b.in_order();
  const KnomialPlace place = knomial_place(nodes.size(), nodes.place(), std::max(2, radix));
  const auto open_level = [&](const std::vector<std::int32_t>& level) {
    for (std::uint32_t j = 0; j < level.size(); ++j)
      b.recv_scratch(nodes.rank_at(level[j]), all, j);
  };
  // Those of the smallest subtrees come first, perhaps while the node folds.
  if (nodes.leads() && !place.children.empty()) open_level(place.children.front());
  const bool hands_on_input = nodes.alone() && place.children.empty() && place.parent >= 0;
  if (!hands_on_input) nodes.fold(b, 0);
  if (!nodes.leads()) return std::move(b).finish();
  for (std::size_t l = 0; l < place.children.size(); ++l) {
    const auto width = static_cast<std::uint32_t>(place.children[l].size());
    if (l > 0) open_level(place.children[l]);
    for (std::uint32_t j = 0; j < width; ++j)
      b.wait(width - 1 - j).reduce(all, j);
  }
  if (place.parent >= 0) b.send(nodes.rank_at(place.parent), all, hands_on_input ? Slot::input : Slot::data);
  return std::move(b).finish();
}

Schedule reduce::knomial(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  return knomial_reduce(Hierarchy::of_ranks(topology, rank, shape.root), shape.radix, shape.root,
                        places_are_ranks(topology, shape.root));
}

}  // namespace heddle
