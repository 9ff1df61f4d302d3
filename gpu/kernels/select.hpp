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
      const unsigned place = kSpan * v + e;
      if constexpr (kBySearch) {
        const Bits key = key_of<Bits>(share.bits(v, e), mask, ceiling);
        found.above |= Places{key > threshold} << place;
        found.equal |= Places{key == threshold} << place;
      } else {
        // The threshold is no larger than the ceiling, so what is above that need not come down to it.
        found.above |= Places{(share.bits(v, e) & mask) >= threshold} << place;
      }
    }
  }
  found.above &= share.present;
  found.equal &= share.present;
  return found;
}

// ---- The kernel

struct SelectShared : TileShared {
  std::uint64_t above[kWarps];  // what each warp has, by vector; then what is before it
  std::uint64_t equal[kWarps];
};

// Makes of what each warp has, by vector, what is before it; gives the tile's total.
HEDDLE_DEVICE inline std::uint64_t place_warps(const Warp& warp, std::uint64_t* warps) {
  std::uint64_t all = 0;
  HEDDLE_UNROLLED
  for (unsigned w = 0; w < kWarps; ++w)
    all += warps[w];
  OfLane<std::uint64_t> before;
  warp.each([&](unsigned lane) {
    before[lane] = all * kLaterVectors;
    HEDDLE_UNROLLED
    for (unsigned w = 0; w < kWarps; ++w)
      before[lane] += w < lane ? warps[w] : 0;
  });
  warp.each([&](unsigned lane) {
    if (lane < kWarps) warps[lane] = before[lane];
  });
  return all * kAllVectors >> 48;
}

// As many as fit into 32 bits, of which a tile needs less.
HEDDLE_DEVICE inline std::uint32_t left_of(std::uint64_t all, std::uint64_t taken) {
  const std::uint64_t left = all > taken ? all - taken : 0;
  return left < 0xFFFFFFFFU ? static_cast<std::uint32_t>(left) : 0xFFFFFFFFU;
}

// Writes a tile's entries behind those of the tiles before. Within it 32 bits number places and entries.
template <typename Bits, typename Index, bool kBySearch>
struct Writer {
  const unsigned char* list;  // of the values' indices; null: they are in their places
  std::uint64_t first;        // the value in the tile's first place, which may be before the values
  unsigned char* indices;     // of the tile's first entry
  unsigned char* values;
  std::uint32_t room;    // for so many entries
  std::uint32_t wanted;  // of those that equal the threshold

  HEDDLE_DEVICE Writer(const SelectArguments& a, const Values& from, std::uint64_t begin, std::uint64_t above,
                       std::uint64_t equal, std::uint64_t all_wanted)
      : list(from.indices), first(begin), wanted(left_of(all_wanted, equal)) {
    const std::uint64_t start = above + (equal < all_wanted ? equal : all_wanted);
    indices = a.indices + start * sizeof(Index);
    values = a.values + start * sizeof(Bits);
    room = left_of(a.capacity, start);
  }

  HEDDLE_DEVICE void put(std::uint32_t place, Bits bits, std::uint32_t to) const {
    if (to >= room) return;
    const Index index = list != nullptr ? load_element<Index>(list + (first + place) * sizeof(Index))
                                        : static_cast<Index>(first) + static_cast<Index>(place);
    store_element(indices + std::uint64_t{to} * sizeof(Index), index);
    store_element(values + std::uint64_t{to} * sizeof(Bits), bits);
  }

  // A thread's, of which those before it in the tile are `above` and `equal` many, by vector.
  HEDDLE_DEVICE void put_all(const Share<Bits>& share, const Found& found, unsigned thread,
                             std::uint64_t above, std::uint64_t equal) const {
    HEDDLE_UNROLLED
    for (unsigned v = 0; v < kInFlight; ++v) {
      if (((found.above | found.equal) >> kSpan * v & 0xFFU) == 0) continue;
      const std::uint32_t place = (v * kThreads + thread) * Share<Bits>::kEach;
      auto larger = static_cast<std::uint32_t>(above >> 16 * v & 0xFFFFU);
      auto equals = static_cast<std::uint32_t>(equal >> 16 * v & 0xFFFFU);
      HEDDLE_UNROLLED
      for (unsigned e = 0; e < Share<Bits>::kEach; ++e) {
        const bool is_above = (found.above >> (kSpan * v + e) & 1U) != 0;
        const bool is_equal = kBySearch && (found.equal >> (kSpan * v + e) & 1U) != 0;
        if (is_above || (is_equal && equals < wanted))
          put(place + e, share.bits(v, e), larger + (!kBySearch ? 0 : equals < wanted ? equals : wanted));
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
    place_tile(block, work, tile, next, shared, [&](const Warp& warp) {
      const std::uint64_t larger = place_warps(warp, shared.above);
      return Tile::counts(larger, kBySearch ? place_warps(warp, shared.equal) : 0);
    });
    const std::uint64_t first = (a.first_tile + tile) * kTileVectors * Share<Bits>::kEach - grid.shift;
    const Writer<Bits, Index, kBySearch> writer(a, from, first, above_so_far + Tile::above(shared.before),
                                                equal_so_far + Tile::equal(shared.before), wanted);
    block.each([&](unsigned thread) {
      writer.put_all(share[thread], found[thread], thread, shared.above[thread / kWarp] + above[thread],
                     kBySearch ? shared.equal[thread / kWarp] + equal[thread] : 0);
    });
  }
  finish_tiles(block, a, tiles, wanted, shared);
}

}  // namespace heddle::gpu::kernels
