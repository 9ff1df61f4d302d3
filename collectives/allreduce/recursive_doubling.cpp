// Allreduce by recursive doubling: R. Thakur, R. Rabenseifner, W. Gropp, IJHPCA 19(1), 2005; with other
// radices: M. Ruefenacht, M. Bull, S. Booth, Parallel Computing 69, 2017.
#include <algorithm>

#include "collectives/collectives.hpp"
#include "collectives/trees.hpp"
#include "schedule/builder.hpp"

namespace heddle {
namespace {

constexpr Chunks kAll{0, 1};

// `radix` participants `distance` apart exchange what they hold, `from` data or still the input, and fold it
// in their order.
struct Round {
  const Participants& fold;
  std::int32_t me;
  std::int32_t distance;
  std::int32_t radix;
  Slot from;

  std::int32_t digit() const { return me / distance % radix; }
  std::int32_t rank_of(std::int32_t other) const { return fold.rank_of(me + (other - digit()) * distance); }
  std::uint32_t unit_of(std::int32_t other) const {
    return static_cast<std::uint32_t>(other < digit() ? other : other - 1);
  }

  // Everybody folds from the left. The first two have their own vector where the fold begins or one place to
  // the right. Others hand on theirs from scratch, so that the first one's can be received where the fold
  // begins.
  void emit(Builder& b) const {
    const bool moves = digit() >= 2;
    const auto own = static_cast<std::uint32_t>(radix) - 1;
    if (moves) {
      b.copy_to_scratch(kAll, own, from);
    } else if (from == Slot::input) {
      b.copy_input();
    }
    for (std::int32_t other = 0; other < radix; ++other) {
      if (other == digit()) continue;
      if (moves && other == 0) {
        b.recv(rank_of(other), kAll);
      } else {
        b.recv_scratch(rank_of(other), kAll, unit_of(other));
      }
    }
    // The next one first, so that no one is sent to by all at once.
    for (std::int32_t i = 1; i < radix; ++i) {
      const std::int32_t to = rank_of((digit() + i) % radix);
      if (moves) {
        b.send_scratch(to, kAll, own);
      } else {
        b.send(to, kAll);
      }
    }
    b.wait();
    for (std::int32_t other = moves ? 1 : 0; other < radix; ++other) {
      if (other == digit()) {
        if (moves) b.reduce(kAll, own);
      } else {
        b.reduce(kAll, unit_of(other), other < digit() && !moves);
      }
    }
  }
};

}  // namespace

void recursive_doubling_steps(Builder& b, std::int32_t size, std::int32_t rank, std::int32_t radix) {
  radix = std::clamp(radix, 2, std::max(2, size));
  const Participants fold(size, radix);
  if (!fold.participates(rank)) {
    // The result lands where the input was read, so the send must be complete first.
    b.send(rank - 1, kAll, Slot::input).wait().recv(rank - 1, kAll).wait();
    return;
  }
  if (fold.paired(rank) || fold.count == 1) b.copy_input();
  if (fold.paired(rank)) b.recv_scratch(rank + 1, kAll).wait().reduce(kAll);
  Slot from = fold.paired(rank) ? Slot::data : Slot::input;
  // After each round a participant holds the fold of a run of ranks, and those it meets next hold the runs
  // beside it.
  std::int32_t distance = 1;
  for (const std::int32_t width : fold.widths) {
    Round{fold, fold.index_of(rank), distance, width, from}.emit(b);
    from = Slot::data;
    distance *= width;
  }
  if (fold.paired(rank)) b.send(rank + 1, kAll).wait();
}

Schedule allreduce::recursive_doubling(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  Builder b(Collective::allreduce, 1);
  b.in_order();
  recursive_doubling_steps(b, topology.size(), rank, shape.radix);
  return std::move(b).finish();
}

}  // namespace heddle
