// Ring allreduce: P. Patarasuk, X. Yuan, J. Parallel and Distributed Computing 69(2), 2009.
#include "collectives/collectives.hpp"
#include "collectives/hierarchy.hpp"
#include "collectives/pipeline.hpp"
#include "collectives/trees.hpp"
#include "schedule/builder.hpp"

namespace heddle {
namespace {

using Iteration = Pipeline::Iteration;

struct Ring {
  const Hierarchy& nodes;
  std::int64_t pieces;    // per block
  std::int64_t blocks;    // of all nodes, in pieces
  std::int64_t messages;  // a leader sends in each phase
  std::int64_t depth;     // messages in flight each way
  std::int64_t first;     // piece of the first message

  // A node sends its own block, pieces in falling order, then the block below, and so on: message t always
  // has the piece below that of message t-1, so both phases are one linear sequence.
  std::int64_t sent(std::int64_t t) const { return ((first - t) % blocks + blocks) % blocks; }
  // What arrives as message t is what is sent on one block later.
  std::int64_t received(std::int64_t t) const { return sent(t + pieces); }
  std::int32_t next() const { return nodes.rank_at((nodes.place() + 1) % nodes.size()); }
  std::int32_t previous() const { return nodes.rank_at((nodes.place() + nodes.size() - 1) % nodes.size()); }
  // Chunks of one piece follow each other, one for each lane.
  Pipeline pipeline() const { return Pipeline(-static_cast<std::int32_t>(nodes.leaders())); }
};

void reduce_scatter(Builder& b, const Ring& ring) {
  const Hierarchy& nodes = ring.nodes;
  const std::int64_t delay = ring.depth - 1;  // a message is folded while the next one arrives
  const auto unit = [&](std::int64_t t) { return static_cast<std::uint32_t>(t % ring.depth); };
  const Pipeline::Window folding{delay, ring.messages + delay};
  Pipeline p = ring.pipeline();
  int recv = 0;
  // Folding over the node needs the whole block at its leaders before they send it; a node of one has it in
  // the input.
  if (!nodes.alone()) {
    Pipeline own = ring.pipeline();
    own.act({0, ring.pieces}, [&](Builder& to, Iteration t) { nodes.fold(to, ring.sent(t)); });
    own.emit(b);
  }
  if (nodes.leads()) {
    recv = p.open(
        {0, ring.messages},
        [&](Builder& to, Iteration t) {
          to.recv_scratch(ring.previous(), nodes.lane_chunks(ring.received(t)), unit(t));
        },
        true);
    const auto send = [&](Slot from) {
      return [&, from](Builder& to, Iteration t) {
        to.send(ring.next(), nodes.lane_chunks(ring.sent(t)), from);
      };
    };
    p.open({0, ring.pieces}, send(nodes.alone() ? Slot::input : Slot::data));
    p.open({ring.pieces, ring.messages}, send(Slot::data));
  }
  p.act(folding, [&](Builder& to, Iteration t) { nodes.fold(to, ring.received(t - delay)); });
  if (nodes.leads()) {
    p.wait_for({{recv, static_cast<int>(delay)}});
    p.act(
        folding,
        [&](Builder& to, Iteration t) {
          to.reduce(nodes.lane_chunks(ring.received(t - delay)), unit(t - delay), true);
        },
        true);
    b.scratch(static_cast<std::uint32_t>(ring.depth));
  }
  p.emit(b);
}

// A node's complete block starts its way where the reduce-scatter's sequence of messages ends.
void gather_all(Builder& b, const Ring& ring) {
  const Hierarchy& nodes = ring.nodes;
  Pipeline p = ring.pipeline();
  if (nodes.leads()) {
    const int recv = p.open({0, ring.messages}, [&](Builder& to, Iteration t) {
      to.recv(ring.previous(), nodes.lane_chunks(ring.received(ring.messages + t)));
    });
    p.wait_for({{recv, static_cast<int>(ring.depth)}});
    p.open({0, ring.messages}, [&](Builder& to, Iteration t) {
      to.send(ring.next(), nodes.lane_chunks(ring.sent(ring.messages + t)));
    });
  }
  if (!nodes.alone()) {
    p.act({0, ring.blocks},
          [&](Builder& to, Iteration t) { nodes.spread(to, ring.sent(ring.messages + t)); });
  }
  p.emit(b);
}

}  // namespace

Schedule ring_allreduce(const Hierarchy& nodes, std::uint32_t pieces) {
  const std::int64_t size = nodes.size();
  Builder b(Collective::allreduce, static_cast<std::uint32_t>(size) * pieces * nodes.leaders());
  const Ring ring{nodes,
                  pieces,
                  size * pieces,
                  (size - 1) * pieces,
                  pieces == 1 ? 1 : 2,
                  std::int64_t{nodes.place()} * pieces + pieces - 1};
  reduce_scatter(b, ring);
  // The allgather writes blocks that the reduce-scatter's first messages are read from.
  if (nodes.leads()) b.wait();
  gather_all(b, ring);
  return std::move(b).finish();
}

Schedule allreduce::ring(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  const std::int32_t size = topology.size();
  const std::uint32_t pieces = pieces_per_block(shape, size);
  if (size == 1) return std::move(Builder(Collective::allreduce, pieces).copy_input()).finish();
  return ring_allreduce(Hierarchy::of_ranks(topology, rank, topology.members(0).front()), pieces);
}

}  // namespace heddle
