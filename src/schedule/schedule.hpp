// A schedule: one rank's part of a collective, as a value that engine, verifier and pricer all read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "schedule/step.hpp"

namespace heddle {

enum class Collective : std::uint8_t { allreduce, bcast, barrier, reduce, allgather };
inline constexpr std::size_t kCollectives = 5;
const char* collective_name(Collective collective);
constexpr bool has_root(Collective collective) {
  return collective == Collective::bcast || collective == Collective::reduce;
}
// Others only move what ranks have.
constexpr bool folds(Collective collective) {
  return collective != Collective::bcast && collective != Collective::allgather;
}

struct Schedule {
  Collective collective = Collective::allreduce;
  std::int32_t root = 0;  // bcast: who has the data at the start; reduce: who gets the result
  // The vector is split into this many near-equal chunks; that of an allgather, which is what all ranks have
  // one after the other, into one for each rank, as long as the others.
  std::uint32_t chunks = 1;
  std::uint32_t scratch_units = 0;  // units of scratch the steps address
  std::uint32_t unit_chunks = 0;    // chunks in one unit: the longest range any step puts into scratch
  std::uint32_t max_open = 0;  // most sends and receives ever open at once (the engine sizes its array by it)
  bool in_order = false;       // folds in rank order, so it also serves non-commutative operations
  std::vector<Step> steps;
};

}  // namespace heddle
