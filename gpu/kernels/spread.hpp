// Entries as a dense vector, or as several: zeros and the entries' values, in one pass. A block makes tile
// after tile in its memory, for which it finds the entries that lie there by a search, and writes each to all
// vectors: so every byte of them is written once, in whole vectors, where a scatter into zeros would read and
// write lines of memory again for single values.
#pragma once

#include <cstdint>

#include "gpu/kernels/search.hpp"
#include "gpu/kernels/sparse_arguments.hpp"

namespace heddle::gpu::kernels {

struct SpreadShared {
  alignas(sizeof(Vector)) unsigned char tile[kSpreadTile];
  SearchBits bits;
};

// Elements [first, behind) of each vector, by whole 16 bytes where it lies so.
template <typename Stored>
HEDDLE_DEVICE void write_tile(const SpreadArguments& a, const SpreadShared& shared, std::uint64_t first,
                              std::uint64_t behind, unsigned thread) {
  const std::uint64_t bytes = (behind - first) * sizeof(Stored);
  HEDDLE_NOT_UNROLLED
  for (std::uint32_t r = 0; r < a.n_outputs; ++r) {
    unsigned char* const to = a.outputs[r] + first * sizeof(Stored);
    if (bytes == kSpreadTile && reinterpret_cast<std::uintptr_t>(to) % sizeof(Vector) == 0) {
      HEDDLE_UNROLLED
      for (unsigned k = 0; k < kSpreadTile / (kThreads * sizeof(Vector)); ++k) {
        const std::uint64_t at = (k * kThreads + thread) * sizeof(Vector);
        store_vector(to + at, load_vector(shared.tile + at));
      }
    } else {
      for (std::uint64_t at = thread * sizeof(Stored); at < bytes; at += kThreads * sizeof(Stored))
        store_element(to + at, load_element<Stored>(shared.tile + at));
    }
  }
}

template <typename Stored, typename Index>
HEDDLE_DEVICE void spread_entries(const Block& block, const SpreadArguments& a, SpreadShared& shared) {
  constexpr std::uint64_t kEach = kSpreadTile / sizeof(Stored);
  if (a.broken != nullptr && *a.broken != 0) return;
  const std::uint64_t count = a.counted != nullptr && *a.counted < a.count ? *a.counted : a.count;
  const auto index = [&](std::uint64_t i) { return load_element<Index>(a.indices + i * sizeof(Index)); };
  for (std::uint64_t tile = block.number; tile * kEach < a.dimension; tile += block.of) {
    const std::uint64_t first = tile * kEach;
    const std::uint64_t behind = first + kEach < a.dimension ? first + kEach : a.dimension;
    block.alone([&](unsigned thread) {
      HEDDLE_UNROLLED
      for (unsigned k = 0; k < kSpreadTile / (kThreads * sizeof(Vector)); ++k)
        store_vector(shared.tile + (k * kThreads + thread) * sizeof(Vector), Vector{});
    });
    Bounds begin = {0, count};
    Bounds end = {0, count};
    find_both(block, shared.bits, begin, end,
              [&](bool is_begin, std::uint64_t i) { return index(i) < (is_begin ? first : behind); });
    block.each([](unsigned) {});
    block.each([&](unsigned thread) {
      for (std::uint64_t i = begin.least + thread; i < end.least; i += kThreads) {
        const std::uint64_t place = std::uint64_t{index(i)} - first;
        const Stored value = load_element<Stored>(a.values + i * sizeof(Stored));
        if (place < kEach)
          store_element(shared.tile + place * sizeof(Stored), value == a.cleared ? Stored{} : value);
      }
    });
    block.each([&](unsigned thread) { write_tile<Stored>(a, shared, first, behind, thread); });
  }
}

}  // namespace heddle::gpu::kernels
