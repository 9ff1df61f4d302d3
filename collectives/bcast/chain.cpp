// Pipelined chain bcast: J. Watts, R. van de Geijn, Parallel Processing Letters 5(2), 1995.
#include <vector>

#include "collectives/collectives.hpp"
#include "collectives/hierarchy.hpp"
#include "collectives/pipeline.hpp"
#include "collectives/trees.hpp"
#include "schedule/builder.hpp"

namespace heddle {

Schedule chain_bcast(const Hierarchy& nodes, std::uint32_t pieces, std::int32_t root) {
  using Iteration = Pipeline::Iteration;
  Builder b(Collective::bcast, pieces * nodes.leaders());
  b.root(root);
  // A piece is received one iteration before it is passed on, and meanwhile the receive of the next one is
  // open.
  Pipeline p(static_cast<std::int32_t>(nodes.leaders()));
  const bool first = nodes.place() == 0;
  if (nodes.leads()) {
    std::vector<Pipeline::Need> needs;
    if (!first) {
      needs.push_back({p.open({-1, Iteration{pieces} - 1},
                              [&](Builder& to, Iteration i) {
                                to.recv(nodes.rank_at(nodes.place() - 1), nodes.lane_chunks(i + 1));
                              }),
                       1});
    }
    const int wait = p.wait_for(needs);
    if (nodes.place() < nodes.size() - 1) {
      const int sent = p.open({0, pieces}, [&](Builder& to, Iteration i) {
        to.send(nodes.rank_at(nodes.place() + 1), nodes.lane_chunks(i));
      });
      p.also_wait_for(wait, {sent, 2});
    }
  }
  // While one piece is on its way to the next node the one before spreads; at the root's node the one after,
  // since its leaders have nothing to send until they have it.
  if (!nodes.alone()) {
    const Iteration ahead = first ? 1 : 0;
    p.act({-ahead, Iteration{pieces} - ahead},
          [&, ahead](Builder& to, Iteration i) { nodes.spread(to, i + ahead); });
  }
  p.emit(b);
  return std::move(b).finish();
}

Schedule bcast::chain(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  return chain_bcast(Hierarchy::of_ranks(topology, rank, shape.root), pieces_per_block(shape, 1), shape.root);
}

}  // namespace heddle
