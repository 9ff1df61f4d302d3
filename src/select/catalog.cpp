#include "select/catalog.hpp"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <set>

#include "collectives/collectives.hpp"
#include "collectives/hierarchy.hpp"
#include "collectives/trees.hpp"

namespace heddle {
namespace {

using Shapes = std::vector<Shape>;

// Below this a message costs its latency, so that cutting it up further cannot pay.
constexpr std::size_t kLeastPiece = 4096;

// 1, and of `counts` (rising) those that leave pieces of kLeastPiece bytes or more.
Shapes pieces_of(std::size_t bytes, std::initializer_list<std::uint32_t> counts, std::uint32_t offset = 0) {
  Shapes shapes{{0, 2, 1 + offset}};
  for (const std::uint32_t count : counts) {
    if (bytes / count >= kLeastPiece) shapes.push_back({0, 2, count + offset});
  }
  return shapes;
}

// The first of `radices` (rising), and the others that still change the tree.
Shapes radices_of(std::int32_t size, std::initializer_list<std::int32_t> radices) {
  Shapes shapes;
  for (const std::int32_t radix : radices) {
    if (shapes.empty() || shapes.back().radix < size) shapes.push_back({0, radix, 1});
  }
  return shapes;
}

Shapes only_shape(const TopologyView& /*topology*/, std::size_t /*bytes*/) {
  return {Shape{}};
}

Shapes any_radix(const TopologyView& topology, std::size_t /*bytes*/) {
  return radices_of(topology.size(), {2, 4, 8});
}

// Radix 2 has an entry of its own.
Shapes wide_radix(const TopologyView& topology, std::size_t /*bytes*/) {
  return radices_of(topology.size(), {4, 8});
}

Shapes ring_shapes(const TopologyView& topology, std::size_t bytes) {
  return pieces_of(bytes / static_cast<std::size_t>(topology.size()), {2, 4});
}

// The latency of a message in units of what it keeps its sender busy. With 3 ranks the root sends to both.
Shapes postal_shapes(const TopologyView& topology, std::size_t /*bytes*/) {
  return radices_of(topology.size(), {2, 3, 4, 6, 8, 12});
}

// Pieces of the first and largest message; later ones are cut as often.
Shapes halves_shapes(const TopologyView& /*topology*/, std::size_t bytes) {
  return pieces_of(bytes / 4, {2, 4});
}

// Or more parts than halves, in fewer rounds.
Shapes halving_shapes(const TopologyView& topology, std::size_t bytes) {
  Shapes shapes = halves_shapes(topology, bytes);
  if (topology.size() > 2) {
    for (const Shape& parts : radices_of(topology.size(), {4, 8}))
      shapes.push_back(parts);
  }
  return shapes;
}

// chunks 1: whole vectors; from 2 on: halves in pieces.
Shapes swing_shapes(const TopologyView& /*topology*/, std::size_t bytes) {
  Shapes shapes{Shape{}};
  for (const Shape& halves : pieces_of(bytes / 4, {2, 4}, 1))
    shapes.push_back(halves);
  return shapes;
}

// Every rank meets radix - 1 others at a time: 3 is for threefold numbers of ranks.
Shapes exchange_shapes(const TopologyView& topology, std::size_t /*bytes*/) {
  return radices_of(topology.size(), {2, 3, 4, 8});
}

Shapes tree_shapes(const TopologyView& /*topology*/, std::size_t bytes) {
  return pieces_of(bytes / 2, {4, 16, 64});
}

Shapes chain_shapes(const TopologyView& /*topology*/, std::size_t bytes) {
  return pieces_of(bytes, {4, 16, 64, 128, 256});
}

// More than some pieces only of such that messages wait for their receivers: nothing else keeps the root from
// sending many at a time, of which all are late where they share its link. In simulation 32 pieces of 32 KiB
// took four times as long as 16 of 64 KiB.
Shapes circulant_shapes(const TopologyView& /*topology*/, std::size_t bytes) {
  constexpr std::size_t kLeastThatWaits = std::size_t{128} << 10;
  Shapes shapes = pieces_of(bytes, {4, 16});
  for (const std::uint32_t count : {32U, 64U}) {
    if (bytes / count >= kLeastThatWaits) shapes.push_back({0, 2, count});
  }
  return shapes;
}

// Each shape with one leader a node, with two, and with as many as there can be.
Shapes with_leaders(const TopologyView& topology, const Shapes& shapes) {
  const std::uint32_t most = leaders_of(topology, {0, 2, 1, UINT32_MAX});
  Shapes all;
  for (const Shape& shape : shapes) {
    for (const std::uint32_t leaders : std::set<std::uint32_t>{1U, std::min(2U, most), most})
      all.push_back({shape.root, shape.radix, shape.chunks, leaders});
  }
  return all;
}

// Recursive doubling between nodes.
Shapes among_nodes_shapes(const TopologyView& topology, std::size_t /*bytes*/) {
  return radices_of(topology.nodes(), {2, 3, 4, 8});
}

// chunks 1: recursive doubling, of small vectors, which one leader serves best; from 2 on: Rabenseifner on
// pieces.
Shapes two_level_allreduce_shapes(const TopologyView& topology, std::size_t bytes) {
  Shapes shapes = among_nodes_shapes(topology, bytes);
  Shapes rabenseifner = pieces_of(bytes / 4, {4, 16}, 1);
  // For those that halves leave over, of other numbers of nodes than powers of two; fewer rounds for the
  // others.
  if (topology.nodes() > 2) {
    for (const Shape& parts : radices_of(topology.nodes(), {4, 8}))
      rabenseifner.push_back({0, parts.radix, 2});
  }
  const Shapes halving = with_leaders(topology, rabenseifner);
  shapes.insert(shapes.end(), halving.begin(), halving.end());
  return shapes;
}

Shapes two_level_ring_shapes(const TopologyView& topology, std::size_t bytes) {
  return with_leaders(topology, pieces_of(bytes / static_cast<std::size_t>(topology.nodes()), {2, 4}));
}

// chunks 1: k-nomial; 2: scatter-allgather; from 3 on: double binary tree.
Shapes two_level_bcast_shapes(const TopologyView& topology, std::size_t bytes) {
  Shapes shapes = radices_of(topology.nodes(), {2, 4, 8});
  shapes.push_back({0, 2, 2});
  const Shapes trees = with_leaders(topology, pieces_of(bytes / 2, {4, 16, 64}, 2));
  shapes.insert(shapes.end(), trees.begin(), trees.end());
  return shapes;
}

// chunks 1: k-nomial or binomial; 2: Rabenseifner's; from 3 on: double binary tree.
Shapes two_level_reduce_shapes(const TopologyView& topology, std::size_t bytes) {
  Shapes shapes = radices_of(topology.nodes(), {2, 4, 8});
  shapes.push_back({0, 2, 2});
  const Shapes trees = pieces_of(bytes / 2, {4, 16, 64}, 2);
  shapes.insert(shapes.end(), trees.begin(), trees.end());
  return shapes;
}

Shapes two_level_chain_shapes(const TopologyView& topology, std::size_t bytes) {
  return with_leaders(topology, chain_shapes(topology, bytes));
}

Shapes two_level_split_shapes(const TopologyView& topology, std::size_t /*bytes*/) {
  return with_leaders(topology, {Shape{}});
}

// Of an allgather: others are Bruck's algorithm.
Shapes whole_shapes(const TopologyView& topology, std::size_t /*bytes*/) {
  Shapes shapes = radices_of(topology.size(), {2, 3, 4, 8});
  std::erase_if(shapes, [&](const Shape& s) { return Participants(topology.size(), s.radix).extra > 0; });
  return shapes.empty() ? Shapes{Shape{}} : shapes;
}

// chunks 1: recursive doubling; 2: split_allgather. Of a reduce: binomial, Rabenseifner's.
Shapes leaders_shapes(const TopologyView& /*topology*/, std::size_t /*bytes*/) {
  return {{0, 2, 1}, {0, 2, 2}};
}

// chunks 1: one leader a domain; from 2 on: as many as there can be, and pieces.
Shapes leader_shapes(const TopologyView& topology, std::size_t bytes) {
  Shapes shapes{{0, 2, 1}};
  for (const Shape& parallel : pieces_of(bytes / static_cast<std::size_t>(topology.leaders(0)), {4, 16}, 1))
    shapes.push_back(parallel);
  return shapes;
}

Shapes leader_bcast_shapes(const TopologyView& /*topology*/, std::size_t bytes) {
  return pieces_of(bytes, {4, 16});
}

}  // namespace

// At equal price the first one wins: the simpler ones come first.
const std::vector<Algorithm>& catalog() {
  constexpr auto kAllreduce = Collective::allreduce;
  constexpr auto kBcast = Collective::bcast;
  constexpr auto kReduce = Collective::reduce;
  constexpr auto kAllgather = Collective::allgather;
  // Never destroyed: MPI may be called, and ended, from what a program has left to atexit().
  static const auto& algorithms = *new std::vector<Algorithm>{
      {"team", kAllreduce, allreduce::team, true, false, false, false, only_shape},
      {"recursive_doubling", kAllreduce, allreduce::recursive_doubling, false, true, false, false,
       exchange_shapes},
      {"rabenseifner", kAllreduce, allreduce::rabenseifner, false, true, false, false, halving_shapes},
      {"swing", kAllreduce, allreduce::swing, false, true, false, false, swing_shapes, true},
      {"ring", kAllreduce, allreduce::ring, false, true, false, false, ring_shapes, false, true},
      {"double_binary_tree", kAllreduce, allreduce::double_binary_tree, false, true, false, false,
       tree_shapes},
      {"knomial", kAllreduce, allreduce::knomial, false, true, false, false, any_radix},
      {"multi_leader", kAllreduce, allreduce::multi_leader, true, false, true, false, leader_shapes},
      {"two_level", kAllreduce, allreduce::two_level, true, true, false, true, two_level_allreduce_shapes},
      {"two_level_ring", kAllreduce, allreduce::two_level_ring, true, true, false, true,
       two_level_ring_shapes, false, true},
      {"two_level_split", kAllreduce, allreduce::two_level_split, true, true, false, true,
       two_level_split_shapes},
      {"split_allgather", kAllreduce, allreduce::split_allgather, false, true, false, false, only_shape},
      {"leaders", kAllreduce, allreduce::leaders, false, true, false, true, leaders_shapes},
      {"team", kBcast, bcast::team, true, false, false, false, only_shape},
      {"binomial", kBcast, bcast::binomial, false, true, false, false, only_shape},
      {"bine", kBcast, bcast::bine, false, true, false, false, only_shape, true},
      {"knomial", kBcast, bcast::knomial, false, true, false, false, wide_radix},
      {"postal", kBcast, bcast::postal, false, true, false, false, postal_shapes},
      {"chain", kBcast, bcast::chain, false, true, false, false, chain_shapes, false, true},
      {"scatter_allgather", kBcast, bcast::scatter_allgather, false, true, false, false, only_shape},
      {"scatter_doubling", kBcast, bcast::scatter_doubling, false, true, false, false, any_radix},
      {"double_binary_tree", kBcast, bcast::double_binary_tree, false, true, false, false, tree_shapes},
      {"circulant", kBcast, bcast::circulant, false, true, false, false, circulant_shapes, false, false,
       true},
      {"multi_leader", kBcast, bcast::multi_leader, true, false, true, false, leader_bcast_shapes},
      {"two_level", kBcast, bcast::two_level, true, true, false, true, two_level_bcast_shapes},
      {"two_level_chain", kBcast, bcast::two_level_chain, true, true, false, true, two_level_chain_shapes,
       false, true},
      {"team", kReduce, reduce::team, true, false, false, false, only_shape},
      {"binomial", kReduce, reduce::binomial, false, true, false, false, only_shape},
      {"knomial", kReduce, reduce::knomial, false, true, false, false, wide_radix},
      {"rabenseifner", kReduce, reduce::rabenseifner, false, true, false, false, halves_shapes},
      {"chain", kReduce, reduce::chain, false, true, false, false, chain_shapes, false, true},
      {"double_binary_tree", kReduce, reduce::double_binary_tree, false, true, false, false, tree_shapes},
      {"two_level", kReduce, reduce::two_level, true, true, false, true, two_level_reduce_shapes},
      {"two_level_chain", kReduce, reduce::two_level_chain, true, true, false, true, chain_shapes, false,
       true},
      {"leaders", kReduce, reduce::leaders, false, true, false, true, leaders_shapes},
      {"recursive_doubling", Collective::barrier, barrier::recursive_doubling, false, true, false, false,
       exchange_shapes},
      {"team", Collective::barrier, barrier::team, true, false, false, false, only_shape},
      {"multi_leader", Collective::barrier, barrier::multi_leader, true, false, true, false, only_shape},
      {"two_level", Collective::barrier, barrier::two_level, true, true, false, true, among_nodes_shapes},
      {"team", kAllgather, allgather::team, true, false, false, false, only_shape},
      {"recursive_doubling", kAllgather, allgather::recursive_doubling, false, true, false, false,
       whole_shapes},
      {"bruck", kAllgather, allgather::bruck, false, true, false, false, exchange_shapes},
      {"ring", kAllgather, allgather::ring, false, true, false, false, only_shape, false, true},
      {"two_level", kAllgather, allgather::two_level, true, true, false, true, among_nodes_shapes},
      {"two_level_ring", kAllgather, allgather::two_level_ring, true, true, false, true, only_shape, false,
       true},
  };
  return algorithms;
}

const Algorithm* find_algorithm(Collective collective, std::string_view name) {
  for (const Algorithm& algorithm : catalog()) {
    if (algorithm.collective == collective && name == algorithm.name) return &algorithm;
  }
  return nullptr;
}

bool folds_alike(const TopologyView& topology, bool team, const Choice& choice) {
  const auto build = choice.algorithm->build;
  if (team && topology.nodes() == 1) return build == allreduce::team || build == reduce::team;
  if (choice.shape.radix != 2) return false;
  const bool flat = topology.nodes() == 1 || topology.nodes() == topology.size();
  if (choice.algorithm->collective == Collective::reduce) {
    if (flat) return build == reduce::binomial || build == reduce::rabenseifner;
    return team ? build == reduce::two_level && choice.shape.chunks <= 2 : build == reduce::leaders;
  }
  if (flat) return build == allreduce::recursive_doubling || build == allreduce::rabenseifner;
  // The latter rounds numbers of 16 bits after each rank of a node, and not once.
  return team ? build == allreduce::two_level : build == allreduce::leaders && choice.shape.chunks <= 1;
}

}  // namespace heddle
