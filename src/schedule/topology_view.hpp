// What an algorithm may know of the machine: which ranks share which group, at each level.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "schedule/step.hpp"

namespace heddle {

// Level 0 is the node, whose ranks share memory; further levels (rack, pod, ...) are coarser. Nodes may
// consist of domains, within which sharing is cheaper. A view is the same value on every rank of a
// communicator.
class TopologyView {
 public:
  // `group_of[level][rank]` is a group number; numbers are dense, in order of first appearance. Every level
  // must have the same number of ranks and each level must refine the next. `domain_of[rank]` likewise,
  // refining level 0; empty: every node is one domain.
  explicit TopologyView(std::vector<std::vector<std::int32_t>> group_of,
                        std::vector<std::int32_t> domain_of = {});

  static TopologyView flat(std::int32_t size);                                   // every rank on its own node
  static TopologyView one_node(std::int32_t size);                               // all ranks on one node
  static TopologyView uniform(std::int32_t nodes, std::int32_t ranks_per_node);  // block placement
  static TopologyView of_domains(std::vector<std::int32_t> domain_of);           // of one node

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
  std::int32_t most_members() const;  // of any node
  // Position of a rank among its node's members.
  std::int32_t member_index(std::int32_t rank) const { return member_of(TeamKind::node, rank); }

  // Of the node of a rank.
  std::int32_t domains(std::int32_t rank) const {
    return domains_[static_cast<std::size_t>(node_of(rank))].count;
  }
  // Ranks in the smallest domain of the node of a rank: so many places have a rank in each domain.
  std::int32_t leaders(std::int32_t rank) const {
    return domains_[static_cast<std::size_t>(node_of(rank))].least;
  }
  bool has_domains() const;  // some node has several

  // The teams of all nodes are numbered from 0 on. A rank whose place some domain of its node lacks has no
  // peers but itself. Members of a node's and a domain's team are in rising order, peers in that of their
  // domains.
  std::int32_t teams() const { return static_cast<std::int32_t>(teams_.size()); }
  std::int32_t team_of(TeamKind kind, std::int32_t rank) const { return seat(kind, rank).team; }
  std::int32_t member_of(TeamKind kind, std::int32_t rank) const { return seat(kind, rank).member; }
  const std::vector<std::int32_t>& team(TeamKind kind, std::int32_t rank) const {
    return teams_[static_cast<std::size_t>(team_of(kind, rank))];
  }

 private:
  struct Seat {
    std::int32_t team;
    std::int32_t member;
  };
  struct Domains {
    std::int32_t count;
    std::int32_t least;  // ranks
  };
  const Seat& seat(TeamKind kind, std::int32_t rank) const {
    return seats_[static_cast<std::size_t>(kind)][static_cast<std::size_t>(rank)];
  }
  void add_team(TeamKind kind, std::vector<std::int32_t> members);
  void add_peers(const std::vector<std::vector<std::int32_t>>& domains);

  std::vector<std::vector<std::int32_t>> group_of_;
  std::vector<std::vector<std::int32_t>> members_;
  std::vector<Domains> domains_;  // by node
  std::vector<std::vector<std::int32_t>> teams_;
  std::array<std::vector<Seat>, kTeamKinds> seats_;  // by rank
};

// Parameters of one use of an algorithm, equal on every rank.
struct Shape {
  std::int32_t root = 0;      // bcast, reduce
  std::int32_t radix = 2;     // k of the k-nomial algorithms, >= 2
  std::uint32_t chunks = 1;   // pipeline depth: pieces per block for algorithms that pipeline
  std::uint32_t leaders = 1;  // ranks of each node that send to other nodes, for algorithms of two levels
};

}  // namespace heddle
