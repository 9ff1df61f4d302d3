// What an algorithm may know of the machine: which ranks share which group, at each level.
#pragma once

#include <cstdint>
#include <vector>

namespace heddle {

// Level 0 is the innermost shared-memory team ("node"); further levels (rack, pod, ...) are coarser. A view
// is the same value on every rank of a communicator.
class TopologyView {
 public:
  // `group_of[level][rank]` is a group number; numbers are dense, in order of first appearance. Every level
  // must have the same number of ranks and each level must refine the next.
  explicit TopologyView(std::vector<std::vector<std::int32_t>> group_of);

  static TopologyView flat(std::int32_t size);                                   // every rank on its own node
  static TopologyView one_node(std::int32_t size);                               // all ranks on one node
  static TopologyView uniform(std::int32_t nodes, std::int32_t ranks_per_node);  // block placement

  std::int32_t size() const { return static_cast<std::int32_t>(group_of_[0].size()); }
  int levels() const { return static_cast<int>(group_of_.size()); }
  std::int32_t nodes() const { return static_cast<std::int32_t>(members_.size()); }
  std::int32_t node_of(std::int32_t rank) const { return group_of_[0][static_cast<std::size_t>(rank)]; }
  std::int32_t group_of(int level, std::int32_t rank) const {
    return group_of_[static_cast<std::size_t>(level)][static_cast<std::size_t>(rank)];
  }
  // Ranks of a node in rising order.
  const std::vector<std::int32_t>& members(std::int32_t node) const {
    return members_[static_cast<std::size_t>(node)];
  }
  // Position of a rank among its node's members.
  std::int32_t member_index(std::int32_t rank) const { return member_index_[static_cast<std::size_t>(rank)]; }

 private:
  std::vector<std::vector<std::int32_t>> group_of_;
  std::vector<std::vector<std::int32_t>> members_;
  std::vector<std::int32_t> member_index_;
};

// Parameters of one use of an algorithm, equal on every rank.
struct Shape {
  std::int32_t root = 0;     // bcast
  std::int32_t radix = 2;    // k of the k-nomial algorithms, >= 2
  std::uint32_t chunks = 1;  // pipeline depth: pieces per block for algorithms that pipeline
};

}  // namespace heddle
