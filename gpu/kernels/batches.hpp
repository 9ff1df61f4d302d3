// How the warps of a block read the vector that entries are selected from. A batch is what a warp loads at
// once: four vectors of 16 bytes for each lane, vector v of lane l being number 32 v + l of the batch. A
// warp's part of a tile is some batches behind each other, and so are the parts of a tile.
#pragma once

#include <cstdint>

#include "gpu/kernels/source.hpp"

namespace heddle::gpu::kernels {

template <typename Bits>
struct Cut {
  static constexpr unsigned kEach = Grid<Bits>::kEach;
  Grid<Bits> grid;
  std::uint32_t batches;  // of a warp, in each tile
  std::uint64_t tiles;

  // Into as many tiles as there are, or fewer. (Divisions of 64 bits would take longer than the first values
  // do.)
  HEDDLE_DEVICE Cut(const Grid<Bits>& whole_lines, std::uint32_t most_tiles)
      : grid(whole_lines),
        batches(grid.tiles == 0 ? 1 : (static_cast<std::uint32_t>(grid.tiles) + most_tiles - 1) / most_tiles),
        tiles((static_cast<std::uint32_t>(grid.tiles) + batches - 1) / batches) {}
  // Of a warp's part of a tile: a vector's number, of the grid.
  HEDDLE_DEVICE std::uint64_t first_of(std::uint64_t tile, unsigned warp) const {
    return (tile * kWarps + warp) * batches * kBatchVectors;
  }
  // A lane's line of two batches from vector `first` on comes to the cache.
  HEDDLE_DEVICE void prefetch(std::uint64_t first, unsigned lane) const {
    const std::uint64_t vector = first + lane * (kLineBytes / sizeof(Vector));
    if (vector < grid.vectors && vector * kEach >= grid.shift)
      kernels::prefetch(grid.begin + vector * sizeof(Vector));
  }
  HEDDLE_DEVICE void load(Share<Bits>& share, std::uint64_t first, unsigned lane) const {
    share.load(grid, first, kBatchVectors, lane, kWarp);
  }
  // A part's first batch; the next two come to the cache.
  HEDDLE_DEVICE void begin_part(Share<Bits>& share, std::uint64_t first, unsigned lane) const {
    load(share, first, lane);
    prefetch(first + kBatchVectors, lane);
  }
};

}  // namespace heddle::gpu::kernels
