// Swing: D. De Sensi, T. Bonato, D. Saam, T. Hoefler, NSDI 2024; Bine butterflies: D. De Sensi et al., SC'25.
#include "collectives/collectives.hpp"
#include "collectives/halving.hpp"
#include "collectives/trees.hpp"
#include "schedule/builder.hpp"

namespace heddle {
namespace {

// 1, -1, 3, -5, 11, ...: what an even participant adds to its number in round 0, 1, 2, ... and an odd one
// takes away.
constexpr std::int32_t reach(std::int32_t round) {
  std::int32_t sum = 0;
  for (std::int32_t i = 0, term = 1; i <= round; ++i, term *= -2)
    sum += term;
  return sum;
}

std::int32_t partner(std::int32_t me, std::int32_t round, std::int32_t rounds) {
  const std::int32_t mask = (1 << rounds) - 1;
  return (me % 2 == 0 ? me + reach(round) : me - reach(round)) & mask;
}

// Participants that rounds after this one bring together have the same side, which is an even number. Reaches
// of rounds after `round` differ by multiples of 2^(round+2), so who starts even meets evens that are so far
// apart, and odds beyond the next reach.
std::int32_t side(std::int32_t me, std::int32_t round, std::int32_t rounds) {
  if (round == rounds - 1) return me;
  const std::int32_t mask = (1 << (round + 2)) - 1;
  return (me % 2 == 0 ? me : me - reach(round + 1)) & mask;
}

bool keeps_lower(std::int32_t me, std::int32_t round, std::int32_t rounds) {
  return side(me, round, rounds) < side(partner(me, round, rounds), round, rounds);
}

// Farthest first: so those who meet have folded either the same or disjoint ranks, and all who fold the same
// do it by the same expression. The other way around, each rank would have one of its own.
void whole_vectors(Builder& b, std::int32_t size, std::int32_t rank) {
  const Chunks all{0, 1};
  const Participants fold(size);
  if (!fold.participates(rank)) {
    // The result lands where the input was read, so the send must be complete first.
    b.send(rank - 1, all, Slot::input).wait().recv(rank - 1, all);
    return;
  }
  b.copy_input();
  if (fold.paired(rank)) b.recv_scratch(rank + 1, all).wait().reduce(all);
  const std::int32_t me = fold.index_of(rank);
  const std::int32_t rounds = floor_log2(fold.count);
  for (std::int32_t round = rounds - 1; round >= 0; --round) {
    const std::int32_t other = fold.rank_of(partner(me, round, rounds));
    b.recv_scratch(other, all).send(other, all).wait();
    b.reduce(all, 0, !keeps_lower(me, round, rounds));
  }
  if (fold.paired(rank)) b.send(rank + 1, all);
}

}  // namespace

Schedule allreduce::swing(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  const std::int32_t size = topology.size();
  if (shape.chunks <= 1) {
    Builder b(Collective::allreduce, 1);
    if (size <= 3) b.in_order();
    whole_vectors(b, size, rank);
    return std::move(b).finish();
  }
  const std::uint32_t pieces = pieces_per_block({0, 2, shape.chunks - 1}, Participants(size).count);
  Builder b(Collective::allreduce, halving_chunks(size, pieces));
  if (size <= 3) b.in_order();
  halving_allreduce(b, size, rank, pieces, {partner, keeps_lower});
  return std::move(b).finish();
}

}  // namespace heddle
