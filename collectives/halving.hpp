// Halving and doubling, whoever the partners are.
#pragma once

#include <cstdint>

#include "collectives/hierarchy.hpp"
#include "schedule/builder.hpp"

namespace heddle {

// Who exchanges with whom among 2^rounds participants, and who of the two keeps the lower half. In every
// round partners must have kept the same chunks so far: sides that all of those agree on who meet in later
// rounds, and partners differ in.
struct Butterfly {
  std::int32_t (*partner)(std::int32_t me, std::int32_t round, std::int32_t rounds);
  bool (*keeps_lower)(std::int32_t me, std::int32_t round, std::int32_t rounds);
};

// At distance 1, 2, 4, ...: a participant holds chunks folded over a run of participants, and its partner
// over the run beside it.
inline constexpr Butterfly kNearestFirst{
    [](std::int32_t me, std::int32_t round, std::int32_t /*rounds*/) { return me ^ (1 << round); },
    [](std::int32_t me, std::int32_t round, std::int32_t /*rounds*/) { return (me >> round & 1) == 0; }};

// Reduce-scatter by halves, then the same exchanges backwards. Other numbers of ranks than powers of two fold
// pairs of neighbours first. A half goes in `pieces` pieces. What the keeper of the lower half held is the
// left operand.
void halving_allreduce(Builder& b, std::int32_t size, std::int32_t rank, std::uint32_t pieces,
                       const Butterfly& butterfly);
// The same reduce-scatter, nearest first, and then the exchanges backwards as a binomial gather to `root`.
void halving_reduce(Builder& b, std::int32_t size, std::int32_t rank, std::int32_t root,
                    std::uint32_t pieces);
// Chunks that these take.
std::uint32_t halving_chunks(std::int32_t size, std::uint32_t pieces);

// The same with up to `radix` parts instead of halves: in each round a participant meets up to radix - 1
// others at a time, and there are fewer rounds with as many bytes. Where the number of ranks is a product of
// numbers up to `radix` all take part. Folds in the order of ranks. In one piece.
void multiway_allreduce(Builder& b, std::int32_t size, std::int32_t rank, std::int32_t radix);
std::uint32_t multiway_chunks(std::int32_t size, std::int32_t radix);

// A bcast from place 0: it parts with what the others of its group are to spread, nearest and most
// first, they do the same, and then all meet as in the second half of the allreduce. As many chunks.
void multiway_bcast(Builder& b, const Places& places, std::int32_t place, std::int32_t radix);

}  // namespace heddle
