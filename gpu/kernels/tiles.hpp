// How the blocks of a launch write, in order, what each finds in its part of the input, in one pass. The
// input is cut into tiles. A tile's place in the output is known when all tiles before it are counted. Blocks
// that have counted theirs say so in the tile's word and look back over the words of the tiles before until
// they find one that knows all before itself (D. Merrill, M. Garland, "Single-pass Parallel Prefix Scan with
// Decoupled Look-back", NVIDIA technical report NVR-2016-002). Tiles are taken by tickets, so a tile that is
// waited for has been taken by a block that runs: no order of blocks, and no number of them that run at once,
// is relied upon.
#pragma once

#include <cstdint>

#include "gpu/kernels/block.hpp"
#include "gpu/kernels/sparse_arguments.hpp"

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

// ---- Taking and placing tiles

struct TileShared {
  std::uint64_t tile;    // that the block has, of the launch
  std::uint64_t before;  // counts of the tiles before, in this launch
  std::uint64_t is_last;
};

// Of the first `many` warps.
HEDDLE_DEVICE inline std::uint64_t sum_of(const std::uint64_t* warps, unsigned many) {
  std::uint64_t sum = 0;
  HEDDLE_UNROLLED
  for (unsigned w = 0; w < kWarps; ++w)
    sum += w < many ? warps[w] : 0;
  return sum;
}

// Of a launch, where there are `all` in all launches.
template <class Arguments>
HEDDLE_DEVICE std::uint64_t tiles_here(const Arguments& a, std::uint64_t all) {
  const std::uint64_t left = all > a.first_tile ? all - a.first_tile : 0;
  return left < a.most_tiles ? left : a.most_tiles;
}

HEDDLE_DEVICE inline void take_first_tile(const Block& block, Workspace& work, TileShared& shared) {
  block.each([&](unsigned thread) {
    if (thread == 0) shared.tile = add_to_word(&work.ticket, 1);
  });
}

HEDDLE_DEVICE inline void tell_counted(std::uint64_t* words, std::uint64_t tile, std::uint64_t counts) {
  store_shared_word(&words[tile], (tile == 0 ? Tile::kKnown : Tile::kCounted) | counts);
}

// Tells what the tile has, finds what those before it have, and goes on to `next`, which the first thread
// alone knows. `count(warp)`, of the block's first warp, gives the counts.
template <class Count>
HEDDLE_DEVICE void place_tile(const Block& block, Workspace& work, std::uint64_t tile,
                              const std::uint64_t& next, TileShared& shared, Count count) {
  block.first_warp([&](const Warp& warp) {
    const std::uint64_t own = count(warp);
    warp.each([&](unsigned lane) {
      if (lane == 0) tell_counted(work.tiles, tile, own);
    });
    const std::uint64_t before = look_back(warp, work.tiles, tile);
    warp.each([&](unsigned lane) {
      if (lane != 0) return;
      store_shared_word(&work.tiles[tile], Tile::kKnown | (before + own));
      shared.before = before;
      shared.tile = next;
    });
  });
}

// Says that this block asks no more for what others have told: shared.is_last, behind the next barrier, is 1
// where it was the last one.
HEDDLE_DEVICE inline void leave_tiles(const Block& block, Workspace& work, std::uint64_t tiles,
                                      TileShared& shared) {
  block.alone([&](unsigned thread) {
    if (thread != 0) return;
    shared.is_last = meet(&work.done) + 1 == block.of ? 1 : 0;
    shared.before = tiles > 0 && shared.is_last != 0 ? load_shared_word(&work.tiles[tiles - 1]) : 0;
  });
}

// After that and a barrier the last block leaves the workspace as it was found, for the next launch, and
// tells how many entries there are: all that are above, and `wanted` of those that are equal.
template <class Arguments>
HEDDLE_DEVICE void clear_tiles(const Block& block, const Arguments& a, std::uint64_t tiles,
                               std::uint64_t wanted, const TileShared& shared) {
  Workspace& work = *a.workspace;
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

template <class Arguments>
HEDDLE_DEVICE void finish_tiles(const Block& block, const Arguments& a, std::uint64_t tiles,
                                std::uint64_t wanted, TileShared& shared) {
  leave_tiles(block, *a.workspace, tiles, shared);
  block.each([](unsigned /*thread*/) {});
  clear_tiles(block, a, tiles, wanted, shared);
}

// After that, of codes: whether they were as many as they should be.
HEDDLE_DEVICE inline void finish_unpacking(const Block& block, const UnpackArguments& a,
                                           std::uint64_t all_tiles, std::uint64_t tiles,
                                           const TileShared& shared) {
  if (shared.is_last == 0 || a.first_tile + tiles != all_tiles) return;
  block.each([&](unsigned thread) {
    if (thread == 0 && a.workspace->above != a.count) store_shared_word(a.bad, 1);
  });
}

}  // namespace heddle::gpu::kernels
