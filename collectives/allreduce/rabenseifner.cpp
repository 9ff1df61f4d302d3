// Rabenseifner's allreduce: R. Rabenseifner, ICCS 2004, LNCS 3036.
#include <algorithm>

#include "collectives/collectives.hpp"
#include "collectives/pipeline.hpp"
#include "collectives/trees.hpp"
#include "schedule/builder.hpp"

namespace heddle {
namespace {

// Sends the chunks from `give` on to a partner and folds the partner's into those from `keep` on. While the
// input is still in place of the data, what is kept is copied on the way.
struct Exchange {
  std::int32_t partner;
  bool partner_is_lower;
  std::uint32_t give;
  std::uint32_t keep;
  std::uint32_t length;
  std::uint32_t pieces;
  Slot from;

  void emit(Builder& b) const {
    using Iteration = Pipeline::Iteration;
    const std::uint32_t piece = length / pieces;
    const std::int64_t delay = pieces == 1 ? 0 : 1;  // a piece is folded while the next one arrives
    const auto part = [piece](std::uint32_t start, std::int64_t i) {
      return Chunks{start + piece * static_cast<std::uint32_t>(i), piece};
    };
    const auto unit = [delay](std::int64_t i) { return static_cast<std::uint32_t>(i % (delay + 1)); };
    const Pipeline::Window moving{0, pieces};
    const Pipeline::Window folding{delay, pieces + delay};
    Pipeline p(static_cast<std::int32_t>(piece));
    const int recv = p.open(
        moving, [&](Builder& to, Iteration i) { to.recv_scratch(partner, part(keep, i), unit(i)); }, true);
    p.open(moving, [&](Builder& to, Iteration i) { to.send(partner, part(give, i), from); });
    if (from == Slot::input)
      p.act(folding, [&](Builder& to, Iteration i) { to.copy_input(part(keep, i - delay)); });
    p.wait_for({{recv, static_cast<int>(delay)}});
    p.act(
        folding,
        [&](Builder& to, Iteration i) {
          to.reduce(part(keep, i - delay), unit(i - delay), partner_is_lower);
        },
        true);
    p.emit(b);
    // What was given away may be received again, and what was kept is sent next.
    b.wait();
  }
};

// Both of a pair fold one half; the lower rank then gets the upper half from its neighbour and takes part for
// both.
Slot fold_pair(Builder& b, const PowerOfTwo& fold, std::int32_t rank, std::uint32_t chunks,
               std::uint32_t pieces) {
  if (!fold.paired(rank)) return Slot::input;
  const std::uint32_t half = chunks / 2;
  if (fold.participates(rank)) {
    Exchange{rank + 1, false, half, 0, half, pieces, Slot::input}.emit(b);
    b.recv(rank + 1, {half, half}).wait();
  } else {
    Exchange{rank - 1, true, 0, half, half, pieces, Slot::input}.emit(b);
    b.send(rank - 1, {half, half}).wait();
  }
  return Slot::data;
}

}  // namespace

Schedule allreduce::rabenseifner(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  const PowerOfTwo fold(topology.size());
  const std::uint32_t pieces = pieces_per_block(shape, fold.participants);
  const std::uint32_t chunks = static_cast<std::uint32_t>(fold.participants) * pieces;
  Builder b(Collective::allreduce, chunks);
  b.in_order();
  if (topology.size() == 1) return std::move(b.copy_input()).finish();
  b.scratch(pieces == 1 ? 1 : 2);
  Slot from = fold_pair(b, fold, rank, chunks, pieces);
  if (!fold.participates(rank)) return std::move(b.recv(rank - 1, {0, chunks})).finish();

  // The rank holds `length` chunks from `first` on, folded over a run of `distance` participants.
  const std::int32_t me = fold.index_of(rank);
  std::uint32_t first = 0;
  std::uint32_t length = chunks;
  for (std::int32_t distance = 1; distance < fold.participants; distance *= 2) {
    length /= 2;
    const std::int32_t partner = me ^ distance;
    const std::uint32_t lower = first;
    const std::uint32_t upper = first + length;
    first = partner < me ? upper : lower;
    Exchange{fold.rank_of(partner), partner < me, partner < me ? lower : upper, first, length, pieces, from}
        .emit(b);
    from = Slot::data;
  }
  for (std::int32_t distance = fold.participants / 2; distance >= 1; distance /= 2) {
    const std::int32_t partner = me ^ distance;
    const std::uint32_t theirs = partner < me ? first - length : first + length;
    b.recv(fold.rank_of(partner), {theirs, length}).send(fold.rank_of(partner), {first, length}).wait();
    first = std::min(first, theirs);
    length *= 2;
  }
  if (fold.paired(rank)) b.send(rank + 1, {0, chunks});
  return std::move(b).finish();
}

}  // namespace heddle
