#include "collectives/hierarchy.hpp"

#include <algorithm>

namespace heddle {

Places::Places(const TopologyView& topology, std::int32_t root)
    : topology_(&topology), node_(topology.node_of(root)) {
  if (topology.nodes() == topology.size()) return;
  ranks_.reserve(static_cast<std::size_t>(topology.size()));
  for (std::int32_t i = 0; i < topology.nodes(); ++i) {
    const std::vector<std::int32_t>& members = topology.members((node_ + i) % topology.nodes());
    // With the root first the members of its node keep their order around it.
    const auto first = i == 0 ? members.begin() + topology.member_index(root) : members.begin();
    ranks_.insert(ranks_.end(), first, members.end());
    ranks_.insert(ranks_.end(), members.begin(), first);
  }
}

std::int32_t Places::place_of(std::int32_t rank) const {
  if (ranks_.empty()) return (topology_->node_of(rank) - node_ + topology_->nodes()) % topology_->nodes();
  return static_cast<std::int32_t>(std::find(ranks_.begin(), ranks_.end(), rank) - ranks_.begin());
}

std::uint32_t leaders_of(const TopologyView& topology, const Shape& shape) {
  std::size_t least = topology.members(0).size();
  for (std::int32_t node = 1; node < topology.nodes(); ++node)
    least = std::min(least, topology.members(node).size());
  return std::clamp(shape.leaders, 1U, static_cast<std::uint32_t>(least));
}

Hierarchy Hierarchy::of_ranks(const TopologyView& topology, std::int32_t rank, std::int32_t root) {
  Hierarchy h;
  h.places_.emplace(topology, root);
  h.size_ = topology.size();
  h.place_ = h.places_->place_of(rank);
  h.lane_ = 0;
  h.own_ = {0};
  return h;
}

Hierarchy Hierarchy::of_nodes(const TopologyView& topology, std::int32_t rank, std::uint32_t leaders) {
  Hierarchy h;
  const std::int32_t node = topology.node_of(rank);
  h.size_ = topology.nodes();
  h.place_ = node;
  h.alone_ = topology.members(node).size() == 1;
  for (std::uint32_t l = 0; l < leaders; ++l)
    h.own_.push_back(static_cast<std::int32_t>(l));
  const auto member = static_cast<std::uint32_t>(topology.member_index(rank));
  if (member >= leaders) return h;
  h.lane_ = static_cast<std::int32_t>(member);
  for (std::int32_t n = 0; n < topology.nodes(); ++n)
    h.peers_.push_back(topology.members(n)[member]);
  return h;
}

Hierarchy Hierarchy::of_nodes_from(const TopologyView& topology, std::int32_t rank, std::uint32_t leaders,
                                   std::int32_t root) {
  const std::int32_t root_node = topology.node_of(root);
  const std::int32_t root_member = topology.member_index(root);
  // The first members lead their nodes; the root changes seats with the first of its own.
  const auto seat = [&](std::int32_t node, std::int32_t member) {
    if (node != root_node) return member;
    return member == root_member ? 0 : member == 0 ? root_member : member;
  };
  Hierarchy h;
  const std::int32_t node = topology.node_of(rank);
  h.size_ = topology.nodes();
  h.place_ = (node - root_node + h.size_) % h.size_;
  h.alone_ = topology.members(node).size() == 1;
  h.from_root_ = node == root_node;
  for (std::uint32_t l = 0; l < leaders; ++l)
    h.own_.push_back(seat(node, static_cast<std::int32_t>(l)));
  const std::int32_t lane = seat(node, topology.member_index(rank));
  if (lane >= static_cast<std::int32_t>(leaders)) return h;
  h.lane_ = lane;
  for (std::int32_t i = 0; i < h.size_; ++i) {
    const std::int32_t n = (root_node + i) % h.size_;
    h.peers_.push_back(topology.members(n)[static_cast<std::size_t>(seat(n, lane))]);
  }
  return h;
}

void Hierarchy::fold(Builder& b, std::int64_t block, std::uint32_t length) const {
  if (alone_) {
    b.copy_input({static_cast<std::uint32_t>(block) * length, length});
    return;
  }
  for (std::uint32_t l = 0; l < leaders(); ++l)
    b.team(StepKind::team_reduce, Slot::input, own_[l], lane_chunks(block, length, l));
}

void Hierarchy::spread(Builder& b, std::int64_t block, std::uint32_t length) const {
  if (alone_) return;
  if (from_root_) {
    b.team(StepKind::team_bcast, Slot::data, own_[0],
           {static_cast<std::uint32_t>(block) * leaders() * length, leaders() * length});
    return;
  }
  for (std::uint32_t l = 0; l < leaders(); ++l)
    b.team(StepKind::team_bcast, Slot::data, own_[l], lane_chunks(block, length, l));
}

void fold_members(Builder& b, const std::vector<std::int32_t>& members, Chunks all) {
  const auto others = static_cast<std::uint32_t>(members.size()) - 1;
  const auto open = [&](std::uint32_t i) { b.recv_scratch(members[i + 1], all, i % 2); };
  if (others > 0) open(0);
  b.copy_input(all);
  for (std::uint32_t i = 0; i < others; ++i) {
    const bool more = i + 1 < others;
    if (more) open(i + 1);
    b.wait(more ? 1 : 0).reduce(all, i % 2);
  }
}

}  // namespace heddle
