// Double binary tree bcast: P. Sanders, J. Speck, J. L. Traeff, Parallel Computing 35(12), 2009.
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

}  // namespace

Schedule double_binary_tree_bcast(const Hierarchy& nodes, std::uint32_t pieces, std::int32_t root) {
  Builder b(Collective::bcast, 2 * pieces * nodes.leaders());
  b.root(root);
  if (nodes.size() == 1) return std::move(b).finish();
  const std::int32_t place = nodes.place();
  const std::array<InOrderPlace, 2> trees = two_trees_place(nodes.size() - 1, place);
  const auto at_in = [&trees](int tree) { return trees[static_cast<std::size_t>(tree)]; };
  const auto block = [pieces](int tree, Iteration piece) {
    return (tree == 0 ? 0 : Iteration{pieces}) + piece;
  };

  // A piece goes down one level of its tree per iteration; its receive is opened one iteration before.
  Pipeline p(static_cast<std::int32_t>(nodes.leaders()));
  std::vector<Pipeline::Need> needs;
  for (int tree = 0; tree < 2 && nodes.leads(); ++tree) {
    const InOrderPlace at = at_in(tree);
    if (at.parent < 0) continue;
    const Iteration start = at.depth - 1;
    const int recv = p.open({start, start + pieces}, [&, tree, start, at](Builder& to, Iteration i) {
      to.recv(nodes.rank_at(at.parent), nodes.lane_chunks(block(tree, i - start)), tree);
    });
    needs.push_back({recv, 1});
  }
  int wait = nodes.leads() ? p.wait_for(needs) : -1;
  // One message is under way to each child, and they take turns: a second one to the same child would, on
  // networks that let messages share a link, only hold up the first, and the children's turns keep the link
  // busy.
  bool another = false;
  for (int tree = 0; tree < 2 && nodes.leads(); ++tree) {
    const InOrderPlace at = at_in(tree);
    const Iteration start = at.depth;
    for (const std::int32_t child : {at.left, at.right}) {
      if (child < 0) continue;
      if (another) wait = p.wait_for({});
      another = true;
      const int send = p.open({start, start + pieces}, [&, tree, start, child](Builder& to, Iteration i) {
        to.send(nodes.rank_at(child), nodes.lane_chunks(block(tree, i - start)), Slot::data, tree);
      });
      p.also_wait_for(wait, {send, 1});
    }
  }
  // What came spreads while it is on its way on; at the root's node the next piece, which its leaders are to
  // send.
  for (int tree = 0; tree < 2 && !nodes.alone(); ++tree) {
    const Iteration start = place == 0 ? -1 : at_in(tree).depth;
    p.act({start, start + pieces},
          [&, tree, start](Builder& to, Iteration i) { nodes.spread(to, block(tree, i - start)); });
  }
  p.emit(b);
  return std::move(b).finish();
}

Schedule bcast::double_binary_tree(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  return double_binary_tree_bcast(Hierarchy::of_ranks(topology, rank, shape.root), pieces_per_block(shape, 2),
                                  shape.root);
}

}  // namespace heddle
