// A vector's entries that matter, in their order: one pass that reads each value once and writes what is taken to its place at once. A tile's
// place is known when all tiles before it are counted. Blocks that have counted theirs say so in the tile's word and look back over the words of
// the tiles before until they find one that knows all before itself (D. Merrill, M. Garland, "Single-pass Parallel Prefix Scan with
// Decoupled Look-back", NVIDIA technical report NVR-2016-002). Tiles are taken by tickets, so a tile that is waited for has been
// taken by a block that runs: no order of blocks, and no number of them that run at once, is relied upon.
#pragma once

#include <cstdint>

#include "gpu/kernels/source.hpp"

namespace heddle::gpu::kernels {

// ---- Words of tiles: two counts of 31 bits, below what they count

struct Tile {
  static constexpr std::uint64_t kCounted = std::uint64_t{1} << 62;  // the tile alone
  static constexpr std::uint64_t kKnown = std::uint64_t{2} << 62;    // the tile and all before it
  static constexpr unsigned kBits = 31;
  static constexpr std::uint64_t kMask = (std::uint64_t{1} << kBits) - 1;

  HEDDLE_DEVICE static std::uint64_t counts(std::uint64_t above, std::uint64_t equal) {
    return above | equal << kBits;
  }
  HEDDLE_DEVICE static std::uint64_t above(std::uint64_t word) { return word & kMask; }
  HEDDLE_DEVICE static std::uint64_t equal(std::uint64_t word) { return word >> kBits & kMask; }
  HEDDLE_DEVICE static bool is_counted(std::uint64_t word) { return word >> 62 != 0; }
  HEDDLE_DEVICE static bool is_known(std::uint64_t word) { return word >> 63 != 0; }
  HEDDLE_DEVICE static std::uint64_t counts_in(std::uint64_t word) { return word & (kCounted - 1); }
};

// The counts of all tiles before `tile`, which other blocks have taken and will count.
HEDDLE_DEVICE inline std::uint64_t look_back(const Warp& warp, const std::uint64_t* tiles,
                                             std::uint64_t tile) {
  std::uint64_t sum = 0;
  // Lane l has the tile l + 1 before this one, then those before the 32.
  for (std::uint64_t left = tile; left > 0; left = left > kWarp ? left - kWarp : 0) {
    OfLane<std::uint64_t> words;
    std::uint32_t known = 0;
    std::uint32_t wanted = 0;  // lanes up to the nearest that knows all before it
    for (;;) {
      // Before the first tile nothing is: that is known.
      warp.each([&](unsigned lane) {
        words[lane] = lane < left ? load_shared_word(tiles + left - 1 - lane) : Tile::kKnown;
      });
      known = warp.ballot([&](unsigned lane) { return Tile::is_known(words[lane]); });
      wanted = known ^ (known - 1);
      const std::uint32_t counted = warp.ballot([&](unsigned lane) { return Tile::is_counted(words[lane]); });
      if ((counted & wanted) == wanted) break;
      warp.pause();
    }
    sum += warp.sum([&](unsigned lane) {
      return (wanted >> lane & 1U) != 0 ? Tile::counts_in(words[lane]) : std::uint64_t{0};
    });
    if (known != 0) break;
  }
  return sum;
}

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

HEDDLE_DEVICE inline std::uint32_t ones(std::uint32_t bits) {
#ifdef __CUDA_ARCH__
  return static_cast<std::uint32_t>(__popc(bits));
#else
  return static_cast<std::uint32_t>(__builtin_popcount(bits));
#endif
}

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

struct SelectShared {
  std::uint64_t above[kWarps];  // what each warp has, by vector
  std::uint64_t equal[kWarps];
  std::uint64_t tile;
  std::uint64_t before;  // counts of the tiles before, in this launch
  std::uint64_t is_last;
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

// The last block leaves the workspace as it was found, for the next launch.
HEDDLE_DEVICE inline void finish_selection(const Block& block, const SelectArguments& a, std::uint64_t tiles,
                                           std::uint64_t wanted, SelectShared& shared) {
  Workspace& work = *a.workspace;
  block.each([&](unsigned thread) {
    if (thread != 0) return;
    shared.is_last = meet(&work.done) + 1 == block.of ? 1 : 0;
    shared.before = tiles > 0 && shared.is_last != 0 ? load_shared_word(&work.tiles[tiles - 1]) : 0;
  });
  if (shared.is_last == 0) return;
  block.each([&](unsigned thread) {
    for (std::uint64_t tile = thread; tile < tiles; tile += kThreads)
      work.tiles[tile] = 0;
    if (thread != 0) return;
    work.ticket = 0;
    work.done = 0;
    work.above = (a.is_first != 0 ? 0 : work.above) + Tile::above(shared.before);
    work.equal = (a.is_first != 0 ? 0 : work.equal) + Tile::equal(shared.before);
    *a.needed = work.above + (work.equal < wanted ? work.equal : wanted);
  });
}

template <typename Bits, typename Index, bool kBySearch>
HEDDLE_DEVICE void select_entries(const Block& block, const SelectArguments& a, SelectShared& shared) {
  Workspace& work = *a.workspace;
  const Values from = values_of(a.source, work.search);
  const Grid<Bits> grid(from);
  const std::uint64_t left = grid.tiles > a.first_tile ? grid.tiles - a.first_tile : 0;
  const std::uint64_t tiles = left < a.most_tiles ? left : a.most_tiles;
  const std::uint64_t wanted = kBySearch ? work.search.wanted : 0;
  std::uint64_t threshold = a.threshold;
  if (kBySearch || a.from_search != 0) threshold = work.search.key;
  if (!kBySearch && a.from_search != 0 && threshold == 0) threshold = 1;
  const std::uint64_t above_so_far = a.is_first != 0 ? 0 : work.above;
  const std::uint64_t equal_so_far = a.is_first != 0 ? 0 : work.equal;

  block.each([&](unsigned thread) {
    if (thread == 0) shared.tile = add_to_word(&work.ticket, 1);
  });
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
    block.first_warp([&](const Warp& warp) {
      const std::uint64_t own = Tile::counts(total_of(shared.above), kBySearch ? total_of(shared.equal) : 0);
      warp.each([&](unsigned lane) {
        if (lane == 0)
          store_shared_word(&work.tiles[tile], (tile == 0 ? Tile::kKnown : Tile::kCounted) | own);
      });
      const std::uint64_t before = look_back(warp, work.tiles, tile);
      warp.each([&](unsigned lane) {
        if (lane != 0) return;
        store_shared_word(&work.tiles[tile], Tile::kKnown | (before + own));
        shared.before = before;
        shared.tile = next;
      });
    });
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
  finish_selection(block, a, tiles, wanted, shared);
}

}  // namespace heddle::gpu::kernels
