// Two-level allreduce: T. Kielmann, R. Hofman, H. Bal, A. Plaat, R. Bhoedjang, PPoPP 1999; several leaders:
// M. Bayatpour, S. Chakraborty, H. Subramoni, X. Lu, D. K. Panda, SC'17.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "collectives/collectives.hpp"
#include "collectives/halving.hpp"
#include "collectives/hierarchy.hpp"
#include "collectives/trees.hpp"
#include "schedule/builder.hpp"

namespace heddle {
namespace {

// The leaders' algorithm on one piece, cut where its first messages and where its last ones are under way:
// the one time the node folds the next piece, the other it spreads the one before.
struct Between {
  Schedule opening;
  Schedule middle;
  Schedule closing;

  explicit Between(const Schedule& whole) : opening(whole), middle(whole), closing(whole) {
    std::size_t first = whole.steps.size();
    std::size_t last = 0;
    std::uint32_t open = 0;
    for (std::size_t i = 0; i < whole.steps.size(); ++i) {
      const Step& step = whole.steps[i];
      if (step.kind == StepKind::send || step.kind == StepKind::recv) ++open;
      if (step.kind != StepKind::wait || open <= step.count) continue;
      open = step.count;
      first = std::min(first, i);
      last = i;
    }
    const auto at = [&](std::size_t i) { return whole.steps.begin() + static_cast<std::ptrdiff_t>(i); };
    opening.steps.assign(at(0), at(first));
    middle.steps.assign(at(first), at(last));
    closing.steps.assign(at(last), whole.steps.end());
  }
};

Schedule among_leaders(std::int32_t nodes, std::int32_t node, const Shape& shape) {
  const bool whole = shape.chunks <= 1;
  const bool halves = shape.radix <= 2;
  Builder b(Collective::allreduce, whole    ? 1
                                   : halves ? halving_chunks(nodes, 1)
                                            : multiway_chunks(nodes, shape.radix));
  if (whole) {
    recursive_doubling_steps(b, nodes, node, shape.radix);
  } else if (halves) {
    halving_allreduce(b, nodes, node, 1, kNearestFirst);
  } else {
    multiway_allreduce(b, nodes, node, shape.radix);
  }
  return std::move(b).finish();
}

}  // namespace

Schedule allreduce::two_level(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  if (topology.nodes() == 1) return team(topology, rank, shape);
  const std::uint32_t leaders = leaders_of(topology, shape);
  const Hierarchy nodes = Hierarchy::of_nodes(topology, rank, leaders);
  const Schedule inner = among_leaders(nodes.size(), nodes.place(), shape);
  const std::uint32_t length = inner.chunks;
  const std::uint32_t pieces =
      shape.chunks <= 1
          ? 1U
          : pieces_per_block({0, 2, shape.chunks - 1}, static_cast<std::int32_t>(leaders * length));
  const Between between(inner);
  Builder b(Collective::allreduce, pieces * leaders * length);
  if (nodes_are_runs(topology)) b.in_order();
  const auto messages = [&](Builder& to, const Schedule& part, std::uint32_t piece) {
    if (nodes.leads()) to.embed(part, nodes.ranks(), nodes.lane_chunks(piece, length).first);
  };
  const auto run = [&](Builder& to, std::uint32_t piece) {
    messages(to, between.opening, piece);
    if (piece + 1 < pieces) nodes.fold(to, piece + 1, length);
    messages(to, between.middle, piece);
    if (piece > 0) nodes.spread(to, piece - 1, length);
    messages(to, between.closing, piece);
  };
  nodes.fold(b, 0, length);
  run(b, 0);
  if (pieces > 2) {
    b.repeat(pieces - 2, static_cast<std::int32_t>(leaders * length), [&](Builder& to) { run(to, 1); });
  }
  if (pieces > 1) run(b, pieces - 1);
  nodes.spread(b, pieces - 1, length);
  return std::move(b).finish();
}

}  // namespace heddle
