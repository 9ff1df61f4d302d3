// Recursive doubling, and more than doubling: R. Thakur, R. Rabenseifner, W. Gropp, IJHPCA 19(1), 2005; M.
// Ruefenacht, M. Bull, S. Booth, Parallel Computing 69, 2017.
#include "collectives/collectives.hpp"
#include "collectives/trees.hpp"
#include "schedule/builder.hpp"

namespace heddle {

Schedule allgather::recursive_doubling(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  const std::int32_t size = topology.size();
  const Participants all(size, std::max(2, shape.radix));
  if (all.extra > 0) return bruck(topology, rank, shape);
  Builder b(Collective::allgather, static_cast<std::uint32_t>(size));
  std::int32_t have = 1;  // this rank's and its neighbours', from a multiple of it on
  for (const std::int32_t width : all.widths) {
    const std::int32_t group = rank - rank % (have * width);
    const std::int32_t begin = rank - rank % have;
    const auto run = [have](std::int32_t first) {
      return Chunks{static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(have)};
    };
    // Of the i-th after this one, around the group.
    const auto begin_at = [&](std::int32_t i) { return group + (begin - group + i * have) % (have * width); };
    for (std::int32_t i = 1; i < width; ++i)
      b.recv(begin_at(i) + rank % have, run(begin_at(i)));
    for (std::int32_t i = 1; i < width; ++i)
      b.send(begin_at(width - i) + rank % have, run(begin));
    b.wait();
    have *= width;
  }
  return std::move(b).finish();
}

}  // namespace heddle
