// Scatter-allgather bcast: M. Barnett et al., Supercomputing 1994; R. Thakur et al., IJHPCA 19(1), 2005.

#include "collectives/collectives.hpp"
#include "collectives/hierarchy.hpp"
#include "collectives/pipeline.hpp"
#include "collectives/trees.hpp"
#include "schedule/builder.hpp"

namespace heddle {
namespace {

// Every place gets the blocks of its binomial subtree.
void scatter(Builder& b, const Places& places, const KnomialPlace& place, std::int32_t v) {
  if (place.parent >= 0) {
    b.recv(places.rank_at(place.parent),
           {static_cast<std::uint32_t>(v), static_cast<std::uint32_t>(place.subtree)});
    b.wait();
  }
  for (auto level = place.children.rbegin(); level != place.children.rend(); ++level) {
    for (const std::int32_t child : *level) {
      const auto blocks = static_cast<std::uint32_t>(knomial_place(places.size(), child, 2).subtree);
      b.send(places.rank_at(child), {static_cast<std::uint32_t>(child), blocks});
    }
  }
}

// In iteration i a place sends on block v-i. The scatter left it the blocks from v on that would come last.
void gather_all(Builder& b, const Places& places, std::int32_t v) {
  using Iteration = Pipeline::Iteration;
  const std::int32_t size = places.size();
  const auto missing = [&](std::int32_t at) { return Iteration{size} - knomial_place(size, at, 2).subtree; };
  const auto block = [size](std::int64_t at) {
    return Chunks{static_cast<std::uint32_t>((at + size) % size), 1};
  };
  const std::int32_t next = (v + 1) % size;
  Pipeline p(-1);
  const int recv = p.open({0, missing(v)}, [&](Builder& to, Iteration i) {
    to.recv(places.rank_at((v + size - 1) % size), block(v - 1 - i));
  });
  const int wait = p.wait_for({{recv, 1}});
  const int send = p.open({0, missing(next)},
                          [&](Builder& to, Iteration i) { to.send(places.rank_at(next), block(v - i)); });
  p.also_wait_for(wait, {send, 2});
  p.emit(b);
}

}  // namespace

Schedule bcast::scatter_allgather(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  const std::int32_t size = topology.size();
  Builder b(Collective::bcast, static_cast<std::uint32_t>(size));
  b.root(shape.root);
  if (size == 1) return std::move(b).finish();
  const Places places(topology, shape.root);  // block v belongs to place v
  const std::int32_t v = places.place_of(rank);
  scatter(b, places, knomial_place(size, v, 2), v);
  gather_all(b, places, v);
  return std::move(b).finish();
}

}  // namespace heddle
