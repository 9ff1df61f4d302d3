// Pipelined chain bcast: J. Watts, R. van de Geijn, Parallel Processing Letters 5(2), 1995.
#include <vector>

#include "collectives/collectives.hpp"
#include "collectives/pipeline.hpp"
#include "collectives/trees.hpp"
#include "schedule/builder.hpp"

namespace heddle {

Schedule bcast::chain(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  using Iteration = Pipeline::Iteration;
  const std::int32_t size = topology.size();
  const std::uint32_t pieces = pieces_per_block(shape, 1);
  Builder b(Collective::bcast, pieces);
  b.root(shape.root);
  const std::int32_t place = (rank - shape.root + size) % size;
  // A piece is received one iteration before it is passed on, and meanwhile the receive of the next one is
  // open.
  const auto piece = [](Iteration i) { return Chunks{static_cast<std::uint32_t>(i), 1}; };
  Pipeline p(1);
  std::vector<Pipeline::Need> needs;
  if (place > 0) {
    const std::int32_t from = (rank - 1 + size) % size;
    needs.push_back({p.open({-1, Iteration{pieces} - 1},
                            [&, from](Builder& to, Iteration i) { to.recv(from, piece(i + 1)); }),
                     1});
  }
  p.wait_for(needs);
  if (place < size - 1) {
    const std::int32_t to_rank = (rank + 1) % size;
    const int sent =
        p.open({0, pieces}, [&, to_rank](Builder& to, Iteration i) { to.send(to_rank, piece(i)); });
    p.also_wait_for({sent, 2});
  }
  p.emit(b);
  return std::move(b).finish();
}

}  // namespace heddle
