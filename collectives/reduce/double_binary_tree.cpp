// Double binary tree reduce, the bcast backwards: P. Sanders, J. Speck, J. L. Traeff, Parallel Computing
// 35(12), 2009.
#include <array>
#include <vector>

#include "collectives/collectives.hpp"
#include "collectives/hierarchy.hpp"
#include "collectives/pipeline.hpp"
#include "collectives/trees.hpp"
#include "schedule/builder.hpp"

namespace heddle {
namespace {

using Iteration = Pipeline::Iteration;

// One of the two trees as a place sees it, and the half of the vector that goes up there.
struct Branch {
  InOrderPlace at;
  Iteration start;  // the iteration in which its first piece is folded here and sent up
  std::uint32_t first_chunk;
  Iteration pieces;
  int lane;

  Chunks chunk(Iteration piece) const { return {first_chunk + static_cast<std::uint32_t>(piece), 1}; }
  bool inner() const { return at.left >= 0 || at.right >= 0; }
};

// What comes up to a place: from at most two others, in one tree or, at place 0, in both. Of each the piece
// being folded and the next one are in scratch, in units of its own from `unit` on.
struct Source {
  const Branch* branch;
  std::int32_t place;
  Iteration unit;
};
constexpr Iteration kSourceUnits = 2;

std::vector<Source> sources_of(const std::array<Branch, 2>& branches) {
  std::vector<Source> sources;
  for (const Branch& branch : branches) {
    for (const std::int32_t child : {branch.at.left, branch.at.right}) {
      if (child >= 0)
        sources.push_back({&branch, child, kSourceUnits * static_cast<Iteration>(sources.size())});
    }
  }
  return sources;
}

}  // namespace

Schedule double_binary_tree_reduce(const Hierarchy& nodes, std::uint32_t pieces, std::int32_t root,
                                   bool in_order) {
  Builder b(Collective::reduce, 2 * pieces);
  b.root(root);
  // Two nodes leave the second tree nothing to turn around.
  if (in_order && nodes.size() <= 2) b.in_order();
  if (nodes.size() == 1) {
    nodes.fold(b, 0, 2 * pieces);
    return std::move(b).finish();
  }
  const std::array<InOrderPlace, 2> trees = two_trees_place(nodes.size() - 1, nodes.place());
  const Iteration height = in_order_height(nodes.size() - 1) + 1;
  const std::array<Branch, 2> branches{Branch{trees[0], height - trees[0].depth, 0, pieces, 0},
                                       Branch{trees[1], height - trees[1].depth, pieces, pieces, 1}};
  const std::vector<Source> sources = nodes.leads() ? sources_of(branches) : std::vector<Source>();
  const Iteration units = kSourceUnits * static_cast<Iteration>(sources.size());
  b.scratch(static_cast<std::uint32_t>(units));

  // A piece goes up one level of its tree per iteration. It is received in the iteration in which it is sent.
  Pipeline p(1);
  std::vector<Pipeline::Need> needs;
  for (const Source& from : sources) {
    const Branch& branch = *from.branch;
    const Iteration first = branch.start - 1;
    const int recv = p.open(
        {first, first + pieces},
        [&, first](Builder& to, Iteration i) {
          to.recv_scratch(nodes.rank_at(from.place), branch.chunk(i - first),
                          static_cast<std::uint32_t>((from.unit + i + 1) % units), branch.lane);
        },
        true);
    needs.push_back({recv, 1});
  }
  const auto hands_on_input = [&](const Branch& branch) { return nodes.alone() && !branch.inner(); };
  for (const Branch& branch : branches) {
    if (hands_on_input(branch)) continue;
    p.act({branch.start, branch.start + pieces}, [&](Builder& to, Iteration i) {
      nodes.fold(to, static_cast<Iteration>(branch.first_chunk) + i - branch.start);
    });
  }
  const int wait = nodes.leads() ? p.wait_for(needs) : -1;
  for (const Source& from : sources) {
    const Branch& branch = *from.branch;
    p.act(
        {branch.start, branch.start + pieces},
        [&](Builder& to, Iteration i) {
          to.reduce(branch.chunk(i - branch.start), static_cast<std::uint32_t>((from.unit + i) % units));
        },
        true);
  }
  for (const Branch& branch : branches) {
    if (!nodes.leads() || branch.at.parent < 0) continue;
    const int sent = p.open({branch.start, branch.start + pieces}, [&](Builder& to, Iteration i) {
      to.send(nodes.rank_at(branch.at.parent), branch.chunk(i - branch.start),
              hands_on_input(branch) ? Slot::input : Slot::data, branch.lane);
    });
    p.also_wait_for(wait, {sent, 2});
  }
  p.emit(b);
  return std::move(b).finish();
}

Schedule reduce::double_binary_tree(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  return double_binary_tree_reduce(Hierarchy::of_ranks(topology, rank, shape.root),
                                   pieces_per_block(shape, 2), shape.root,
                                   places_are_ranks(topology, shape.root));
}

}  // namespace heddle
