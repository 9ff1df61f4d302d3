#include "schedule/topology_view.hpp"

#include <algorithm>
#include <utility>

namespace heddle {

TopologyView::TopologyView(std::vector<std::vector<std::int32_t>> group_of) : group_of_(std::move(group_of)) {
  const auto& nodes = group_of_.at(0);
  member_index_.reserve(nodes.size());
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
    const auto node = static_cast<std::size_t>(nodes[rank]);
    if (node >= members_.size()) members_.resize(node + 1);
    member_index_.push_back(static_cast<std::int32_t>(members_[node].size()));
    members_[node].push_back(static_cast<std::int32_t>(rank));
  }
}

TopologyView TopologyView::flat(std::int32_t size) {
  return uniform(size, 1);
}
TopologyView TopologyView::one_node(std::int32_t size) {
  return uniform(1, size);
}

TopologyView TopologyView::uniform(std::int32_t nodes, std::int32_t ranks_per_node) {
  std::vector<std::int32_t> node_of;
  node_of.reserve(static_cast<std::size_t>(nodes) * static_cast<std::size_t>(ranks_per_node));
  for (std::int32_t node = 0; node < nodes; ++node)
    node_of.insert(node_of.end(), static_cast<std::size_t>(ranks_per_node), node);
  return TopologyView({std::move(node_of)});
}

}  // namespace heddle
