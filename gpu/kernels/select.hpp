// A vector's entries that matter, in their order: one pass that reads each value once and writes what is taken to its place at once, tile by tile
// (tiles.hpp).
#pragma once

#include <cstdint>

#include "gpu/kernels/source.hpp"
#include "gpu/kernels/tiles.hpp"

namespace heddle::gpu::kernels {

// ---- What a thread finds in its share

// Counts of its vectors side by side, 16 bits each: as many as a tile has places fit. Places rise with the vector first, then with the thread.
static_assert(kInFlight == 4 && kTileVectors * (sizeof(Vector) / 2) < 65536);
inline constexpr std::uint64_t kLaterVectors =
    0x0001000100010000U;  // times counts: what is in the vectors before
inline constexpr std::uint64_t kAllVectors = 0x0001000100010001U;  // times counts: all, in the upper 16 bits

struct Found {
  Places above = 0;
  Places equal = 0;
};

HEDDLE_DEVICE inline std::uint64_t count_each(Places places) {
  std::uint64_t counts = 0;
  HEDDLE_UNROLLED
  for (unsigned v = 0; v < kInFlight; ++v)
    counts |= std::uint64_t{ones(places >> kSpan * v & 0xFFU)} << 16 * v;
  return counts;
}

template <typename Bits>
HEDDLE_DEVICE Bits key_of(Bits bits, Bits mask, Bits ceiling) {
  const Bits magnitude = bits & mask;
  return magnitude < ceiling ? magnitude : ceiling;
}

template <typename Bits, bool kBySearch>
HEDDLE_DEVICE Found find(const Share<Bits>& share, const SelectArguments& a, Bits threshold) {
  const Bits mask = static_cast<Bits>(a.mask);
  const Bits ceiling = static_cast<Bits>(a.ceiling);
  Found found;
  HEDDLE_UNROLLED
  for (unsigned v = 0; v < kInFlight; ++v) {
    HEDDLE_UNROLLED
    for (unsigned e = 0; e < Share<Bits>::kEach; ++e) {
      const Bits key = key_of<Bits>(share.bits(v, e), mask, ceiling);
      found.above |= Places{kBySearch ? key > threshold : key >= threshold} << (kSpan * v + e);
      if constexpr (kBySearch) found.equal |= Places{key == threshold} << (kSpan * v + e);
    }
  }
  found.above &= share.present;
  found.equal &= share.present;
  return found;
}

// ---- The kernel

struct SelectShared : TileShared {
  std::uint64_t above[kWarps];  // what each warp has, by vector
  std::uint64_t equal[kWarps];
};

// By vector, how many there are before this thread's.
HEDDLE_DEVICE inline std::uint64_t first_of(const std::uint64_t* warps, std::uint64_t in_warp,
                                            unsigned thread) {
  std::uint64_t before = in_warp;
  std::uint64_t all = 0;
  HEDDLE_UNROLLED
  for (unsigned w = 0; w < kWarps; ++w) {
    if (w < thread / kWarp) before += warps[w];
    all += warps[w];
  }
  return before + all * kLaterVectors;
}

HEDDLE_DEVICE inline std::uint64_t total_of(const std::uint64_t* warps) {
  std::uint64_t all = 0;
  HEDDLE_UNROLLED
  for (unsigned w = 0; w < kWarps; ++w)
    all += warps[w];
  return all * kAllVectors >> 48;
}

// Writes a thread's entries, of which those before it in the vector are `above` and `equal` many, by vector, behind `start`.
template <typename Bits, typename Index, bool kBySearch>
struct Writer {
  const SelectArguments& a;
  const Values& from;
  const Grid<Bits>& grid;
  std::uint64_t wanted;  // of those that equal the threshold
  std::uint64_t start_above;
  std::uint64_t start_equal;

  HEDDLE_DEVICE void put(std::uint64_t place, Bits bits, std::uint64_t to) const {
    if (to >= a.capacity) return;
    const std::uint64_t at = place - grid.shift;
    const Index index = from.indices != nullptr ? load_element<Index>(from.indices + at * sizeof(Index))
                                                : static_cast<Index>(at);
    store_element(a.indices + to * sizeof(Index), index);
    store_element(a.values + to * sizeof(Bits), bits);
  }

  HEDDLE_DEVICE void put_all(const Share<Bits>& share, const Found& found, std::uint64_t tile,
                             unsigned thread, std::uint64_t above, std::uint64_t equal) const {
    HEDDLE_UNROLLED
    for (unsigned v = 0; v < kInFlight; ++v) {
      if (((found.above | found.equal) >> kSpan * v & 0xFFU) == 0) continue;
      const std::uint64_t first = (tile * kTileVectors + v * kThreads + thread) * Share<Bits>::kEach;
      std::uint64_t larger = start_above + (above >> 16 * v & 0xFFFFU);
      std::uint64_t equals = start_equal + (equal >> 16 * v & 0xFFFFU);
      HEDDLE_UNROLLED
      for (unsigned e = 0; e < Share<Bits>::kEach; ++e) {
        const bool is_above = (found.above >> (kSpan * v + e) & 1U) != 0;
        const bool is_equal = kBySearch && (found.equal >> (kSpan * v + e) & 1U) != 0;
        if (is_above || (is_equal && equals < wanted))
          put(first + e, share.bits(v, e), larger + (equals < wanted ? equals : wanted));
        larger += is_above ? 1 : 0;
        equals += is_equal ? 1 : 0;
      }
    }
  }
};

template <typename Bits, typename Index, bool kBySearch>
HEDDLE_DEVICE void select_entries(const Block& block, const SelectArguments& a, SelectShared& shared) {
  Workspace& work = *a.workspace;
  const Values from = values_of(a.source, work.search);
  const Grid<Bits> grid(from);
  const std::uint64_t tiles = tiles_here(a, grid.tiles);
  const std::uint64_t wanted = kBySearch ? work.search.wanted : 0;
  std::uint64_t threshold = a.threshold;
  if (kBySearch || a.from_search != 0) threshold = work.search.key;
  if (!kBySearch && a.from_search != 0 && threshold == 0) threshold = 1;
  const std::uint64_t above_so_far = a.is_first != 0 ? 0 : work.above;
  const std::uint64_t equal_so_far = a.is_first != 0 ? 0 : work.equal;

  take_first_tile(block, work, shared);
  for (std::uint64_t tile = shared.tile; tile < tiles; tile = shared.tile) {
    Each<Share<Bits>> share;
    Each<Found> found;
    Each<std::uint64_t> above;
    Each<std::uint64_t> equal;
    std::uint64_t next = 0;  // the first thread's alone
    block.alone([&](unsigned thread) {
      share[thread].load(grid, a.first_tile + tile, thread);
      // It comes while the values do.
      if (thread == 0) next = add_to_word(&work.ticket, 1);
      found[thread] = find<Bits, kBySearch>(share[thread], a, static_cast<Bits>(threshold));
      above[thread] = count_each(found[thread].above);
      equal[thread] = count_each(found[thread].equal);
    });
    block.scan_warps(above, shared.above);
    if constexpr (kBySearch) block.scan_warps(equal, shared.equal);
    place_tile(block, work, tile, next, shared,
               [&] { return Tile::counts(total_of(shared.above), kBySearch ? total_of(shared.equal) : 0); });
    const Writer<Bits, Index, kBySearch> writer{a,
                                                from,
                                                grid,
                                                wanted,
                                                above_so_far + Tile::above(shared.before),
                                                equal_so_far + Tile::equal(shared.before)};
    block.each([&](unsigned thread) {
      writer.put_all(share[thread], found[thread], a.first_tile + tile, thread,
                     first_of(shared.above, above[thread], thread),
                     kBySearch ? first_of(shared.equal, equal[thread], thread) : 0);
    });
  }
  finish_tiles(block, a, tiles, wanted, shared);
}

}  // namespace heddle::gpu::kernels
