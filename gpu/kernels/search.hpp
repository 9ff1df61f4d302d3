// Two searches at once in what is sorted, by all threads of a block: in each of a few rounds half of them
// look at places for the one, and half for the other.
#pragma once

#include <cstdint>

#include "gpu/kernels/block.hpp"

namespace heddle::gpu::kernels {

// A number that is looked for: `least` at least, and `most` at most.
struct Bounds {
  std::uint64_t least;
  std::uint64_t most;

  // Places to look at, in order, `step()` apart from the least on; those that are not below the most are
  // none.
  static constexpr unsigned kProbes = kThreads / 2;
  HEDDLE_DEVICE std::uint64_t step() const { return (most - least + kProbes - 1) / kProbes; }
  HEDDLE_DEVICE std::uint64_t probe(unsigned k) const { return least + k * step(); }
  // The number lies behind so many of them, the first ones.
  HEDDLE_DEVICE Bounds narrowed(unsigned before) const {
    const std::uint64_t next = probe(before);
    return {before > 0 ? next - step() + 1 : least, next < most ? next : most};
  }
};

// By turns, since a warp may be a round ahead.
using SearchBits = std::uint32_t[2][kWarps];

// Narrows both to one number each. `is_before(is_first, i)`: whether that of the first ones, or of the second
// ones, lies behind place i. Where that is not in order it is some number in the same bounds.
template <class IsBefore>
HEDDLE_DEVICE void find_both(const Block& block, SearchBits& bits, Bounds& first, Bounds& second,
                             IsBefore is_before) {
  const auto before = [](const std::uint32_t* of_warps) {
    std::uint32_t sum = 0;
    HEDDLE_UNROLLED
    for (unsigned w = 0; w < kWarps / 2; ++w)
      sum += ones(of_warps[w]);
    return sum;
  };
  for (unsigned round = 0; first.least < first.most || second.least < second.most; round = 1 - round) {
    block.ballot_warps(bits[round], [&](unsigned thread) {
      const bool is_first = thread < Bounds::kProbes;
      const Bounds own = {is_first ? first.least : second.least, is_first ? first.most : second.most};
      const std::uint64_t i = own.probe(thread % Bounds::kProbes);
      return i < own.most && is_before(is_first, i);
    });
    first = first.narrowed(before(bits[round]));
    second = second.narrowed(before(bits[round] + kWarps / 2));
  }
}

}  // namespace heddle::gpu::kernels
