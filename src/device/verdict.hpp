// What the ranks of a meeting (meeting.hpp) tell each other of how they fare, in one word.
#pragma once

#include <cstdint>

#include <fmt/format.h>

#include "base/status.hpp"

namespace heddle {

// What a rank says in a meeting. The largest one counts: a failure before what cannot be served, and of
// several the lowest rank's.
enum class Verdict : std::uint8_t { all_right, cannot, failed };

inline std::uint64_t word_of(Verdict verdict, int rank) {
  if (verdict == Verdict::all_right) return 0;
  return (std::uint64_t{static_cast<std::uint8_t>(verdict)} << 32) |
         (UINT32_MAX - static_cast<std::uint32_t>(rank));
}
inline Verdict verdict_of(std::uint64_t word) {
  return static_cast<Verdict>(word >> 32);
}
inline std::uint32_t rank_of(std::uint64_t word) {
  return UINT32_MAX - static_cast<std::uint32_t>(word);
}

// A failure that all are told of in the same call. Want of memory leaves the others waiting, as callers know
// it, for who has more to make the call again: this does not.
inline Status as_told(const Status& mine) {
  return mine.code() == Code::out_of_memory ? Status(Code::system, mine.message()) : mine;
}

// Of the largest of all ranks' words: whether all can. A failure is this rank's own, or names the rank that
// has it.
inline Result<bool> outcome_of(std::uint64_t largest, const Status& mine) {
  if (!mine.ok()) return as_told(mine);
  if (verdict_of(largest) != Verdict::failed) return verdict_of(largest) == Verdict::all_right;
  return Status(Code::peer_failed,
                fmt::format("rank {} could not do its part of a collective on GPUs, and says why there",
                            rank_of(largest)));
}

}  // namespace heddle
