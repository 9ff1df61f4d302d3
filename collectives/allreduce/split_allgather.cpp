// Allreduce by direct exchange: C. Renggli et al., SC'19 (SSAR_Split_allgather), and long before for dense
// vectors.
#include "collectives/collectives.hpp"
#include "schedule/builder.hpp"

namespace heddle {
namespace {

// Steps, open messages and scratch grow with the ranks: beyond this another split with the same volume takes
// over.
constexpr std::int32_t kMostRanks = 32;

}  // namespace

Schedule allreduce::split_allgather(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  const std::int32_t size = topology.size();
  if (size > kMostRanks) return rabenseifner(topology, rank, shape);
  Builder b(Collective::allreduce, static_cast<std::uint32_t>(size));
  if (size == 1) return std::move(b.in_order().copy_input()).finish();
  const auto block = [](std::int32_t owner) { return Chunks{static_cast<std::uint32_t>(owner), 1}; };
  const auto unit = [](std::int32_t distance) { return static_cast<std::uint32_t>(distance - 1); };
  // At every distance each rank sends to another one, so that no one is sent to by all at once.
  const auto above = [&](std::int32_t distance) { return (rank + distance) % size; };
  const auto below = [&](std::int32_t distance) { return (rank + size - distance) % size; };
  for (std::int32_t d = 1; d < size; ++d) {
    b.recv_scratch(below(d), block(rank), unit(d));
    b.send(above(d), block(above(d)), Slot::input);
  }
  b.copy_input(block(rank)).wait();
  for (std::int32_t d = 1; d < size; ++d)
    b.reduce(block(rank), unit(d));
  for (std::int32_t d = 1; d < size; ++d)
    b.recv(below(d), block(below(d))).send(above(d), block(rank));
  return std::move(b).finish();
}

}  // namespace heddle
