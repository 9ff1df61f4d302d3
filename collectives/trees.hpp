// What several algorithms share: pieces, participants of exchanges, k-nomial and postal trees, in-order
// binary trees, the order of nodes.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstdint>
#include <vector>

#include "schedule/topology_view.hpp"

namespace heddle {

// n >= 1.
constexpr std::int32_t floor_log2(std::int32_t n) {
  assert(n >= 1);
  return std::max(0, static_cast<std::int32_t>(std::bit_width(static_cast<std::uint32_t>(n))) - 1);
}

// Pieces that each of `blocks` blocks is cut into: what the shape asks for, but at least 1, and few enough
// for chunk numbers to fit their type.
constexpr std::uint32_t pieces_per_block(const Shape& shape, std::int32_t blocks) {
  return std::clamp(shape.chunks, 1U, std::max(1U, (1U << 30) / static_cast<std::uint32_t>(blocks)));
}

// `size` ranks that exchange in rounds, in each of which those whose numbers differ in one digit meet: as
// many as that round's width, at most `radix`, the nearest first. All of them take part where `size` is a
// product of such widths; of several the one of fewest rounds, and then of fewest messages. Else they are
// folded to fewer, whose number is radix^a * b with b < radix, the largest such one: the first 2*extra ranks
// form pairs of neighbours, of which the lower one takes part for both. Neighbours, so that what a
// participant holds is always a run of ranks. Radix 2: the largest power of two.
struct Participants {
  std::int32_t count = 1;
  std::int32_t extra = 0;            // pairs
  std::vector<std::int32_t> widths;  // by round, the widest first

  explicit Participants(std::int32_t size, std::int32_t radix = 2);

  std::int32_t widest() const { return widths.empty() ? 1 : widths.front(); }
  constexpr bool paired(std::int32_t rank) const { return rank < 2 * extra; }
  constexpr bool participates(std::int32_t rank) const { return !paired(rank) || rank % 2 == 0; }
  constexpr std::int32_t index_of(std::int32_t rank) const { return paired(rank) ? rank / 2 : rank - extra; }
  constexpr std::int32_t rank_of(std::int32_t index) const {
    return index < extra ? 2 * index : index + extra;
  }
};

// Place of node v in the k-nomial tree on 0 .. size-1 with root 0. Subtrees are runs of numbers: a child v +
// j*radix^l has the numbers up to the next multiple of radix^l below it.
struct KnomialPlace {
  std::int32_t parent = -1;
  std::int32_t subtree = 1;  // nodes in v's subtree
  // By level, lowest (smallest subtrees) first; within a level in rising order.
  std::vector<std::vector<std::int32_t>> children;
};
KnomialPlace knomial_place(std::int32_t size, std::int32_t v, std::int32_t radix);

// Place of node v in a tree on 0 .. size-1 with root 0 in which everybody hands on from when it has the
// message, once in each unit of time, and a message takes `delay` (1 or more) units: the last one could not
// have it earlier. Subtrees are runs of numbers, from round ones on where there is a choice.
struct PostalPlace {
  std::int32_t parent = -1;
  std::vector<std::int32_t> children;  // whoever has the most below it first
};
PostalPlace postal_place(std::int32_t size, std::int32_t v, std::int32_t delay);

// Place of node `position` in the binary tree on 1 .. size in which every node's left subtree has the numbers
// just below it and its right subtree those just above. Odd positions are leaves. -1 where there is no such
// node.
struct InOrderPlace {
  std::int32_t parent = -1;
  std::int32_t left = -1;
  std::int32_t right = -1;
  std::int32_t depth = 0;
};
InOrderPlace in_order_place(std::int32_t size, std::int32_t position);
constexpr std::int32_t in_order_root(std::int32_t size) {
  return std::int32_t{1} << floor_log2(size);
}
constexpr std::int32_t in_order_height(std::int32_t size) {
  return floor_log2(size);
}

// The neighbours of a place in each of two trees that have place 0, with one child, above in-order trees on
// places 1 .. others. The second has every place shifted by one, so that places that are inner nodes (even
// positions) of the first are leaves of the second. Depths count from place 0. P. Sanders, J. Speck, J. L.
// Traeff, Parallel Computing 35(12), 2009.
std::array<InOrderPlace, 2> two_trees_place(std::int32_t others, std::int32_t place);

// Whether node 0 has the lowest ranks, node 1 the next, and so on.
bool nodes_are_runs(const TopologyView& topology);
// Whether places from `root` on, those of one node after another, are in the order of ranks.
bool places_are_ranks(const TopologyView& topology, std::int32_t root);

}  // namespace heddle
