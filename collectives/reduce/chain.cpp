// Pipelined chain reduce, the chain bcast backwards: J. Watts, R. van de Geijn, Parallel Processing Letters
// 5(2), 1995.
#include "collectives/collectives.hpp"
#include "collectives/hierarchy.hpp"
#include "collectives/pipeline.hpp"
#include "collectives/trees.hpp"
#include "schedule/builder.hpp"

namespace heddle {

Schedule chain_reduce(const Hierarchy& nodes, std::uint32_t pieces, std::int32_t root, bool in_order) {
  using Iteration = Pipeline::Iteration;
  Builder b(Collective::reduce, pieces);
  b.root(root);
  if (in_order) b.in_order();
  const auto piece = [](Iteration i) { return Chunks{static_cast<std::uint32_t>(i), 1}; };
  const bool receives = nodes.leads() && nodes.place() < nodes.size() - 1;
  const bool sends = nodes.leads() && nodes.place() > 0;
  const bool hands_on_input = nodes.alone() && !receives && sends;
  const Pipeline::Window all{0, pieces};
  // The receive of the next piece is open while this one is folded.
  constexpr Iteration kUnits = 2;
  Pipeline p(1);
  int recv = -1;
  if (receives) {
    b.scratch(kUnits);
    recv = p.open(
        {-1, Iteration{pieces} - 1},
        [&](Builder& to, Iteration i) {
          to.recv_scratch(nodes.rank_at(nodes.place() + 1), piece(i + 1),
                          static_cast<std::uint32_t>((i + 1) % kUnits));
        },
        true);
  }
  if (!hands_on_input) p.act(all, [&](Builder& to, Iteration i) { nodes.fold(to, i); });
  const int wait = nodes.leads() ? p.wait_for({}) : -1;
  if (receives) {
    p.also_wait_for(wait, {recv, 1});
    p.act(
        all, [&](Builder& to, Iteration i) { to.reduce(piece(i), static_cast<std::uint32_t>(i % kUnits)); },
        true);
  }
  if (sends) {
    const int sent = p.open(all, [&](Builder& to, Iteration i) {
      to.send(nodes.rank_at(nodes.place() - 1), piece(i), hands_on_input ? Slot::input : Slot::data);
    });
    p.also_wait_for(wait, {sent, 2});
  }
  p.emit(b);
  return std::move(b).finish();
}

Schedule reduce::chain(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  return chain_reduce(Hierarchy::of_ranks(topology, rank, shape.root), pieces_per_block(shape, 1), shape.root,
                      places_are_ranks(topology, shape.root));
}

}  // namespace heddle
