// The catalog: every algorithm heddle can run, with what it needs; and the choice among them by price.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include "schedule/schedule.hpp"
#include "schedule/topology_view.hpp"

namespace heddle {

using BuildFn = Schedule (*)(const TopologyView& topology, std::int32_t rank, const Shape& shape);

struct Algorithm {
  const char* name;  // "ring", "recursive_doubling", "team", ...
  Collective collective;
  BuildFn build;
  bool needs_team;      // has team verbs: every node of more than one rank must have a Team
  bool needs_messages;  // sends between ranks
  bool needs_domains;   // only on a node of several domains: elsewhere it is another algorithm's twin
  bool by_nodes;  // has a phase within nodes and one between them: with one node it is another algorithm's
                  // twin
  // Shapes worth pricing for a vector of `bytes` (of an allgather: each rank's; root left 0). Never empty.
  std::vector<Shape> (*shapes)(const TopologyView& topology, std::size_t bytes);
  bool by_distance =
      false;  // another algorithm with nearer partners: its twin where all nodes are as far from each other
  bool neighbours = false;  // between nodes each rank sends to one other all along: a ring or chain
  // All ranks go through rounds together and send far in most of them. Their number grows with log p, and
  // what one rank sends and receives says nothing of its waiting.
  bool in_rounds = false;
};

// Runs over sparse streams as well: an allreduce by messages alone.
inline bool serves_streams(const Algorithm& algorithm) {
  return algorithm.collective == Collective::allreduce && !algorithm.needs_team;
}

// Those for which settings and tuning files may name an algorithm.
inline constexpr std::array kChosenCollectives{Collective::allreduce, Collective::bcast, Collective::reduce,
                                               Collective::allgather};

// All of them, in a fixed order. The same on every rank.
const std::vector<Algorithm>& catalog();
const Algorithm* find_algorithm(Collective collective, std::string_view name);

struct Choice {
  const Algorithm* algorithm = nullptr;
  Shape shape;
  double price_ns = 0;
};

// Whether this is one of those allreduces and reduces that give every element the same expression over the
// inputs, the same one for every length and shape: on one node with `team` the fold of the ranks one after
// the other; else of each node's ranks one after the other, and of nodes by recursive doubling.
bool folds_alike(const TopologyView& topology, bool team, const Choice& choice);

}  // namespace heddle
