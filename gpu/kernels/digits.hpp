// The search for the k-th largest magnitude of a vector of f32: how often each digit of the keys occurs, from
// the highest digits down, among those keys that begin with the digits found so far (J. Zhang, A. Naruse, X.
// Li, Y. Wang, "Parallel Top-K Algorithms on GPU: A Comprehensive Study and New Methods", SC'23). The last
// block of a launch finds the next digit of the k-th largest. Zeros are never counted, since they are never
// taken.
//
// A long vector is sampled first, for a digit from which on there are likely to be k and not many more: those
// are listed, and the search is in the list.
#pragma once

#include <cstdint>

#include "gpu/kernels/source.hpp"

namespace heddle::gpu::kernels {

struct DigitShared {
  std::uint32_t counts[kMostDigits + 1];  // and, behind them, the keys that are not counted
  std::uint64_t warps[kWarps];
  std::uint64_t is_last;
};

// How many of a thread's values have each digit. One is added at a time: the hardware adds up what lanes of a
// warp add to one word, where what they add is a constant, while sums that differ would be added one after
// the other. All keys are, to a word that nobody reads if need be: a branch around each would take more than
// that. `prefix`: the bits above the digit.
template <Digit kDigit>
HEDDLE_DEVICE void count_share(const Share<std::uint32_t>& share, std::uint32_t prefix,
                               std::uint32_t* counts) {
  constexpr unsigned kEnd = kDigit.shift + kDigit.bits;
  HEDDLE_UNROLLED
  for (unsigned v = 0; v < kInFlight; ++v) {
    HEDDLE_UNROLLED
    for (unsigned e = 0; e < Share<std::uint32_t>::kEach; ++e) {
      // Places without a value have zeros.
      const std::uint32_t key = key_of<std::uint32_t>(share.bits(v, e), kMagnitudeBits, kNanKey);
      const bool counts_it = key != 0 && (kEnd == kKeyBits || key >> kEnd % kKeyBits == prefix);
      const std::uint32_t digit = key >> kDigit.shift & ((1U << kDigit.bits) - 1);
      add_in_block(&counts[counts_it ? digit : kMostDigits], 1);
    }
  }
}

// Piece number j of a sample, of so many there are: drawn in its part of the vector, so that nothing that
// repeats itself is met in the same place each time.
HEDDLE_DEVICE inline std::uint64_t sampled_piece(std::uint32_t j, std::uint64_t pieces) {
  std::uint32_t drawn = (j + 1) * 0x9E3779B1U;
  drawn = (drawn ^ drawn >> 15) * 0x85EBCA77U;
  drawn = (drawn ^ drawn >> 13) * 0xC2B2AE3DU;
  drawn ^= drawn >> 16;
  return (j * pieces >> kSampleBits) + (drawn * (pieces >> kSampleBits) >> 32);
}

// Two pieces for each thread, two vectors of the grid each.
HEDDLE_DEVICE inline void load_sample(const Grid<std::uint32_t>& grid, std::uint64_t number,
                                      Share<std::uint32_t>& share) {
  constexpr unsigned kEach = Grid<std::uint32_t>::kEach;
  const std::uint64_t first = grid.shift > 0 ? 1 : 0;  // that has a value in each place
  const std::uint64_t pieces = (grid.end / kEach - first) / 2;
  HEDDLE_UNROLLED
  for (unsigned v = 0; v < kInFlight; v += 2) {
    const auto j = static_cast<std::uint32_t>(number * (kInFlight / 2) + v / 2);
    const unsigned char* const at = grid.begin + (first + 2 * sampled_piece(j, pieces)) * sizeof(Vector);
    share.vectors[v] = load_vector(at);
    share.vectors[v + 1] = load_vector(at + sizeof(Vector));
  }
}
static_assert(kInFlight % 2 == 0 && kSampledPieces % (kThreads * kInFlight / 2) == 0);

HEDDLE_DEVICE inline void clear_counts(const Block& block, DigitShared& shared) {
  block.each([&](unsigned thread) {
    for (unsigned digit = thread; digit <= kMostDigits; digit += kThreads)
      shared.counts[digit] = 0;
  });
}

HEDDLE_DEVICE inline void tell_counts(const Block& block, Workspace& work, const DigitShared& shared) {
  block.each([&](unsigned thread) {
    for (unsigned digit = thread; digit < kMostDigits; digit += kThreads) {
      if (shared.counts[digit] != 0) add_to_word(&work.digits[digit], shared.counts[digit]);
    }
  });
}

HEDDLE_DEVICE inline unsigned shift_of(unsigned number) {
  return number == 0 ? kDigits[0].shift : number == 1 ? kDigits[1].shift : kDigits[2].shift;
}

// The digit, number `number` of kDigits, in which `wanted` is reached, from the largest down. All that is
// counted is cleared.
HEDDLE_DEVICE inline void find_digit(const Block& block, Workspace& work, unsigned number,
                                     const Search& search, Search& found, DigitShared& shared) {
  constexpr unsigned kOwn = kMostDigits / kThreads;  // digits of a thread
  Each<std::uint64_t> before;
  block.alone([&](unsigned thread) {
    before[thread] = 0;
    for (unsigned i = 0; i < kOwn; ++i)
      before[thread] += load_shared_word(&work.digits[kMostDigits - 1 - (thread * kOwn + i)]);
  });
  block.scan_warps(before, shared.warps);
  block.each([&](unsigned thread) {
    std::uint64_t larger = before[thread];
    std::uint64_t all = 0;
    for (unsigned w = 0; w < kWarps; ++w) {
      if (w < thread / kWarp) larger += shared.warps[w];
      all += shared.warps[w];
    }
    if (thread == 0 && all < search.wanted) found = {0, 0, 1, search.listed, kAllDigits};
    for (unsigned i = 0; i < kOwn; ++i) {
      const unsigned digit = kMostDigits - 1 - (thread * kOwn + i);
      const std::uint64_t here = load_shared_word(&work.digits[digit]);
      if (larger < search.wanted && search.wanted <= larger + here)
        found = {search.key | std::uint64_t{digit} << shift_of(number), search.wanted - larger, 0,
                 search.listed, number + 1};
      larger += here;
      work.digits[digit] = 0;
    }
  });
}

// The first one, in all values or in a sample of them.
HEDDLE_DEVICE inline void count_digits(const Block& block, const DigitArguments& a, DigitShared& shared) {
  Workspace& work = *a.workspace;
  const Grid<std::uint32_t> grid(values_of(a.source, {}));
  clear_counts(block, shared);
  block.each([&](unsigned thread) {
    Share<std::uint32_t> share;
    if (a.samples != 0) {
      for (std::uint64_t own = block.number * kThreads + thread; own < kSampledPieces / (kInFlight / 2);
           own += block.of * kThreads) {
        load_sample(grid, own, share);
        count_share<kDigits[0]>(share, 0, shared.counts);
      }
      return;
    }
    // From the end: what the cache keeps is the beginning, where the next launch begins.
    for (std::uint64_t done = block.number; done < grid.tiles; done += block.of) {
      share.load(grid, (grid.tiles - 1 - done) * kTileVectors, kTileVectors, thread, kThreads);
      count_share<kDigits[0]>(share, 0, shared.counts);
    }
  });
  tell_counts(block, work, shared);
  block.each([&](unsigned thread) {
    if (thread == 0) shared.is_last = meet(&work.done) + 1 == block.of ? 1 : 0;
  });
  if (shared.is_last == 0) return;
  find_digit(block, work, 0, {0, a.wanted, 0, 0, 0}, work.search, shared);
  block.alone([&](unsigned thread) {
    if (thread == 0) work.done = 0;
  });
}

}  // namespace heddle::gpu::kernels
