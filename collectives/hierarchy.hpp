// The order of ranks by node, and nodes with leaders as an algorithm between nodes sees them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "schedule/builder.hpp"
#include "schedule/schedule.hpp"
#include "schedule/topology_view.hpp"

namespace heddle {

// Places 0, 1, ... for ranks such that those of one node follow each other, whatever their numbers: of a line
// or ring of places one link leads into each node and one out of it. `root` is place 0, then come the others
// of its node and the nodes after it. Borrows the topology. Where every rank is a node it takes no memory,
// and no time.
class Places {
 public:
  Places(const TopologyView& topology, std::int32_t root);
  std::int32_t size() const { return topology_->size(); }
  std::int32_t rank_at(std::int32_t place) const {
    return ranks_.empty() ? topology_->members((node_ + place) % topology_->nodes()).front()
                          : ranks_[static_cast<std::size_t>(place)];
  }
  std::int32_t place_of(std::int32_t rank) const;

 private:
  const TopologyView* topology_;
  std::int32_t node_;                // of the root
  std::vector<std::int32_t> ranks_;  // by place; empty: every rank is a node
};

// How many leaders the nodes can have, each a rank of its own on every node: what is asked for, at least 1,
// at most the ranks of the smallest node.
std::uint32_t leaders_of(const TopologyView& topology, const Shape& shape);

// What one rank sees of nodes that take part in an algorithm like single ranks do. Each node has as many
// leaders, and lane l of the vector, every chunk c with c mod leaders() = l, is the business of leader l of
// all nodes. So however many lead, together they send what one would.
//
// Team verbs come in the same order on all members of a node as long as that depends on the node's place
// alone.
class Hierarchy {
 public:
  // Every rank leads a node of its own.
  static Hierarchy of_ranks(const TopologyView& topology, std::int32_t rank, std::int32_t root);
  static Hierarchy of_nodes(const TopologyView& topology, std::int32_t rank, std::uint32_t leaders);
  // Of a bcast or reduce: places count from the node of `root`, and the root leads lane 0 of its node.
  static Hierarchy of_nodes_from(const TopologyView& topology, std::int32_t rank, std::uint32_t leaders,
                                 std::int32_t root);

  std::int32_t size() const { return size_; }    // nodes
  std::int32_t place() const { return place_; }  // of this rank's node
  std::uint32_t leaders() const { return static_cast<std::uint32_t>(own_.size()); }
  std::int32_t lane() const { return lane_; }  // that this rank leads, or -1
  bool leads() const { return lane_ >= 0; }
  bool alone() const { return alone_; }  // the node has one rank
  // Of the same lane. Only for leaders.
  std::int32_t rank_at(std::int32_t place) const {
    return places_ ? places_->rank_at(place) : peers_[static_cast<std::size_t>(place)];
  }
  const std::vector<std::int32_t>& ranks() const { return peers_; }  // not of_ranks

  // Chunks of block `block`, in which every lane has `length` chunks one after the other.
  Chunks lane_chunks(std::int64_t block, std::uint32_t length = 1) const {
    return lane_chunks(block, length, static_cast<std::uint32_t>(lane_));
  }
  // Puts a block, folded over the node, where its leaders have it: a verb for each lane, or a copy of the
  // input.
  void fold(Builder& b, std::int64_t block, std::uint32_t length = 1) const;
  // Gives the node a block of which each leader has its lane, or, at the root's node, the root has all.
  void spread(Builder& b, std::int64_t block, std::uint32_t length = 1) const;

 private:
  Chunks lane_chunks(std::int64_t block, std::uint32_t length, std::uint32_t lane) const {
    return {(static_cast<std::uint32_t>(block) * leaders() + lane) * length, length};
  }

  std::int32_t size_ = 1;
  std::int32_t place_ = 0;
  std::int32_t lane_ = -1;
  bool alone_ = true;
  bool from_root_ = false;           // the node has the root
  std::vector<std::int32_t> own_;    // by lane: the leader's number within the node's team
  std::vector<std::int32_t> peers_;  // by place: the leaders of this rank's lane
  std::optional<Places> places_;     // instead of these
};

// What the first of `members` does to fold what they send it, in their order: while one's is folded the next
// one's arrives.
void fold_members(Builder& b, const std::vector<std::int32_t>& members, Chunks all);

// What runs between ranks or nodes alike. A node's phases go on while its messages are under way.
Schedule ring_allreduce(const Hierarchy& nodes, std::uint32_t pieces);
Schedule knomial_bcast(const Hierarchy& nodes, std::int32_t radix, std::int32_t root);
Schedule chain_bcast(const Hierarchy& nodes, std::uint32_t pieces, std::int32_t root);
Schedule double_binary_tree_bcast(const Hierarchy& nodes, std::uint32_t pieces, std::int32_t root);
// With one leader for each node, at the root's node the root. `in_order`: places are in the order of ranks.
Schedule knomial_reduce(const Hierarchy& nodes, std::int32_t radix, std::int32_t root, bool in_order);
Schedule chain_reduce(const Hierarchy& nodes, std::uint32_t pieces, std::int32_t root, bool in_order);
Schedule double_binary_tree_reduce(const Hierarchy& nodes, std::uint32_t pieces, std::int32_t root,
                                   bool in_order);

}  // namespace heddle
