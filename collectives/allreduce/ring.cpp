// Ring allreduce: P. Patarasuk, X. Yuan, J. Parallel and Distributed Computing 69(2), 2009.

#include "collectives/collectives.hpp"
#include "collectives/pipeline.hpp"
#include "collectives/trees.hpp"
#include "schedule/builder.hpp"

namespace heddle {
namespace {

struct Ring {
  std::int64_t pieces;    // per block
  std::int64_t chunks;    // in the vector
  std::int64_t messages;  // a rank sends in each phase
  std::int64_t depth;     // messages in flight each way
  std::int64_t first;     // chunk of the first message
  std::int32_t next;
  std::int32_t previous;

  // A rank sends its own block, pieces in falling order, then the block below, and so on: message t always
  // has the chunk below that of message t-1, so both phases are one linear sequence.
  Chunks sent(std::int64_t t) const {
    return {static_cast<std::uint32_t>(((first - t) % chunks + chunks) % chunks), 1};
  }
  // What arrives as message t is what is sent on one block later.
  Chunks received(std::int64_t t) const { return sent(t + pieces); }
};

void reduce_scatter(Builder& b, const Ring& ring) {
  using Iteration = Pipeline::Iteration;
  const std::int64_t delay = ring.depth - 1;  // a message is folded while the next one arrives
  const auto unit = [&](std::int64_t t) { return static_cast<std::uint32_t>(t % ring.depth); };
  const Pipeline::Window folding{delay, ring.messages + delay};
  Pipeline p(-1);
  const int recv = p.open(
      {0, ring.messages},
      [&](Builder& to, Iteration t) { to.recv_scratch(ring.previous, ring.received(t), unit(t)); }, true);
  p.open({0, ring.pieces}, [&](Builder& to, Iteration t) { to.send(ring.next, ring.sent(t), Slot::input); });
  p.open({ring.pieces, ring.messages}, [&](Builder& to, Iteration t) { to.send(ring.next, ring.sent(t)); });
  p.act(folding, [&](Builder& to, Iteration t) { to.copy_input(ring.received(t - delay)); });
  p.wait_for({{recv, static_cast<int>(delay)}});
  p.act(
      folding, [&](Builder& to, Iteration t) { to.reduce(ring.received(t - delay), unit(t - delay), true); },
      true);
  b.scratch(static_cast<std::uint32_t>(ring.depth));
  p.emit(b);
}

// The rank's complete block starts its way where the reduce-scatter's sequence of messages ends.
void allgather(Builder& b, const Ring& ring) {
  using Iteration = Pipeline::Iteration;
  Pipeline p(-1);
  const int recv = p.open({0, ring.messages}, [&](Builder& to, Iteration t) {
    to.recv(ring.previous, ring.received(ring.messages + t));
  });
  p.wait_for({{recv, static_cast<int>(ring.depth)}});
  p.open({0, ring.messages},
         [&](Builder& to, Iteration t) { to.send(ring.next, ring.sent(ring.messages + t)); });
  p.emit(b);
}

}  // namespace

Schedule allreduce::ring(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  const std::int32_t size = topology.size();
  const std::uint32_t pieces = pieces_per_block(shape, size);
  Builder b(Collective::allreduce, static_cast<std::uint32_t>(size) * pieces);
  if (size == 1) return std::move(b.copy_input()).finish();
  const Ring ring{pieces,
                  std::int64_t{size} * pieces,
                  (std::int64_t{size} - 1) * pieces,
                  pieces == 1 ? 1 : 2,
                  std::int64_t{rank} * pieces + pieces - 1,
                  (rank + 1) % size,
                  (rank + size - 1) % size};
  reduce_scatter(b, ring);
  // The allgather writes blocks that the reduce-scatter's first messages are read from.
  b.wait();
  allgather(b, ring);
  return std::move(b).finish();
}

}  // namespace heddle
