// Ring allgather: R. Thakur, R. Rabenseifner, W. Gropp, IJHPCA 19(1), 2005.
#include "collectives/collectives.hpp"
#include "collectives/hierarchy.hpp"
#include "collectives/trees.hpp"
#include "schedule/builder.hpp"

namespace heddle {

// In iteration i a place gets the chunk of the place i + 1 before its own, and sends on what it got before.
Schedule allgather::ring(const TopologyView& topology, std::int32_t rank, const Shape& /*shape*/) {
  const std::int32_t size = topology.size();
  Builder b(Collective::allgather, static_cast<std::uint32_t>(size));
  if (size == 1) return std::move(b).finish();
  const Places places(topology, 0);
  const std::int32_t place = places.place_of(rank);
  const auto at = [&](std::int32_t distance) { return places.rank_at((place + size - distance) % size); };
  const auto chunk = [&](std::int32_t distance) {
    return Chunks{static_cast<std::uint32_t>(at(distance)), 1};
  };
  const auto iteration = [&](Builder& to, std::int32_t i) {
    to.recv(at(1), chunk(i + 1));
    if (i > 0) to.wait(2);  // what came in the iteration before
    to.send(at(size - 1), chunk(i));
  };
  iteration(b, 0);
  if (nodes_are_runs(topology)) {
    b.repeat(static_cast<std::uint32_t>(size - 2), -1, [&](Builder& to) { iteration(to, 1); });
  } else {
    for (std::int32_t i = 1; i < size - 1; ++i)
      iteration(b, i);
  }
  return std::move(b).finish();
}

}  // namespace heddle
