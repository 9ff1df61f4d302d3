// Binomial reduce by ranks: R. Thakur, R. Rabenseifner, W. Gropp, Int. J. High Performance Computing
// Applications 19(1), 2005.
#include "collectives/collectives.hpp"
#include "collectives/trees.hpp"
#include "schedule/builder.hpp"

namespace heddle {

Schedule reduce::binomial(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  const Chunks all{0, 1};
  const Participants fold(topology.size());
  Builder b(Collective::reduce, 1);
  b.root(shape.root).in_order();
  const auto take = [&](std::int32_t from) { b.recv_scratch(from, all).wait().reduce(all, 0, from < rank); };
  if (!fold.participates(rank)) {
    b.send(rank - 1, all, Slot::input);
    // In place the result lands where the input was read.
    if (rank == shape.root) b.wait().recv(rank - 1, all);
    return std::move(b).finish();
  }
  const std::int32_t me = fold.index_of(rank);
  const std::int32_t goal = fold.index_of(shape.root);
  const std::int32_t rounds = floor_log2(fold.count);
  const bool sends_first = !fold.paired(rank) && rounds > 0 && (me & 1) != (goal & 1);
  if (!sends_first) b.copy_input();
  if (fold.paired(rank)) take(rank + 1);
  for (std::int32_t round = 0; round < rounds; ++round) {
    const std::int32_t partner = fold.rank_of(me ^ (1 << round));
    if ((me >> round & 1) != (goal >> round & 1)) {
      b.send(partner, all, sends_first ? Slot::input : Slot::data);
      return std::move(b).finish();
    }
    take(partner);
  }
  if (!fold.participates(shape.root)) b.send(shape.root, all);
  return std::move(b).finish();
}

}  // namespace heddle
