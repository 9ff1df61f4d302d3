// Allreduce by recursive doubling: R. Thakur, R. Rabenseifner, W. Gropp, IJHPCA 19(1), 2005.
#include "collectives/collectives.hpp"
#include "collectives/trees.hpp"
#include "schedule/builder.hpp"

namespace heddle {

void recursive_doubling_steps(Builder& b, std::int32_t size, std::int32_t rank) {
  const Chunks all{0, 1};
  const PowerOfTwo fold(size);
  if (!fold.participates(rank)) {
    // The result lands where the input was read, so the send must be complete first.
    b.send(rank - 1, all, Slot::input).wait().recv(rank - 1, all).wait();
    return;
  }
  b.copy_input();
  if (fold.paired(rank)) b.recv_scratch(rank + 1, all).wait().reduce(all);
  // After each round a participant holds the fold of a run of ranks, and its partner that of the run next to
  // it.
  const std::int32_t me = fold.index_of(rank);
  for (std::int32_t distance = 1; distance < fold.participants; distance *= 2) {
    const std::int32_t partner = me ^ distance;
    b.recv_scratch(fold.rank_of(partner), all).send(fold.rank_of(partner), all).wait();
    b.reduce(all, 0, partner < me);
  }
  if (fold.paired(rank)) b.send(rank + 1, all).wait();
}

Schedule allreduce::recursive_doubling(const TopologyView& topology, std::int32_t rank,
                                       const Shape& /*shape*/) {
  Builder b(Collective::allreduce, 1);
  b.in_order();
  recursive_doubling_steps(b, topology.size(), rank);
  return std::move(b).finish();
}

}  // namespace heddle
