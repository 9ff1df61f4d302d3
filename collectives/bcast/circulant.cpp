// Round-optimal bcast of pieces: J. L. Traeff, 2025 (doi 10.1145/3735139).
#include "collectives/circulant.hpp"

#include <functional>
#include <vector>

#include "collectives/collectives.hpp"
#include "collectives/hierarchy.hpp"
#include "collectives/pipeline.hpp"
#include "collectives/trees.hpp"
#include "schedule/builder.hpp"

namespace heddle {
namespace {

using Iteration = Pipeline::Iteration;

// Phases are the iterations of a pipeline. Before the first round come `idle` ones in which nothing is sent,
// so that the last phase ends with the last round. In the last phase pieces beyond the last one stand for
// that.
struct Phases {
  Iteration rounds;
  Iteration pieces;
  Iteration idle = (rounds - (pieces - 1) % rounds) % rounds;
  Iteration last = (pieces - 1 + idle) / rounds;

  // The first phase in which the piece that would be `piece` in phase 0 exists.
  Iteration begin(Iteration piece) const { return (idle - piece + rounds - 1) / rounds; }
};

// One message in each phase. What carries a new piece is another stage in the last phase, where it carries
// the last piece.
using Stages = std::vector<int>;
using EmitMessage = std::function<void(Builder&, Chunks)>;

Stages open_message(Pipeline& p, const Phases& phases, Iteration piece, const EmitMessage& emit) {
  const auto chunk = [](Iteration of) { return Chunks{static_cast<std::uint32_t>(of), 1}; };
  const bool is_new = piece >= 0;
  Stages stages{p.open(
      {phases.begin(piece), phases.last + (is_new ? 0 : 1)},
      [=](Builder& b, Iteration phase) { emit(b, chunk(piece - phases.idle + phase * phases.rounds)); })};
  if (is_new) {
    stages.push_back(p.open({phases.last, phases.last + 1},
                            [=](Builder& b, Iteration) { emit(b, chunk(phases.pieces - 1)); }));
  }
  return stages;
}

struct Round {
  Stages received;
  Stages sent;
  int wait = 0;
};

// A round's send and receive open when the round before is over. What came then may be what goes now; of
// several messages under way at once each is late where they share a link; and a receive that were open
// earlier would let who is ahead in on who is late. All ranks number rounds alike and wait for messages of
// earlier ones alone, so that every round ends, by induction.
void order(Pipeline& p, const std::vector<Round>& rounds) {
  for (std::size_t k = 0; k < rounds.size(); ++k) {
    const Round& before = rounds[(k == 0 ? rounds.size() : k) - 1];
    const int phases = k == 0 ? 1 : 0;
    for (const Stages* stages : {&before.received, &before.sent}) {
      for (const int stage : *stages)
        p.also_wait_for(rounds[k].wait, {stage, phases});
    }
  }
}

}  // namespace

Schedule bcast::circulant(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  const std::uint32_t pieces = pieces_per_block(shape, 1);
  Builder b(Collective::bcast, pieces);
  b.root(shape.root);
  const Places places(topology, shape.root);
  if (places.size() == 1) return std::move(b).finish();
  const Circulant circle(places.size());
  const std::int32_t place = places.place_of(rank);
  const Phases phases{circle.rounds(), pieces};
  const std::vector<std::int32_t> comes = place == 0 ? std::vector<std::int32_t>() : circle.received(place);

  Pipeline p(circle.rounds());
  std::vector<Round> rounds(static_cast<std::size_t>(circle.rounds()));
  for (std::int32_t k = 0; k < circle.rounds(); ++k) {
    const auto at = static_cast<std::size_t>(k);
    Round& round = rounds[at];
    round.wait = p.wait_for({});
    if (place != 0) {
      const std::int32_t from = places.rank_at((place - circle.skip(k) + places.size()) % places.size());
      round.received =
          open_message(p, phases, comes[at], [from](Builder& to, Chunks piece) { to.recv(from, piece); });
    }
    const std::int32_t next = (place + circle.skip(k)) % places.size();
    if (next == 0) continue;
    round.sent = open_message(p, phases, circle.received(next)[at],
                              [to = places.rank_at(next)](Builder& by, Chunks piece) { by.send(to, piece); });
  }
  order(p, rounds);
  p.emit(b);
  return std::move(b).finish();
}

}  // namespace heddle
