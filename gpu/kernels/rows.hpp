// How the warps of a block read the vector that entries are selected from: row by row, of a value for each lane. Rows begin at whole 128 bytes, whatever
// address the vector begins at. A warp reads sixteen rows, a batch, at once, and the next batch while it looks at this one. Its batches of a tile lie behind each
// other, and so do the warps' parts of a tile: what the lanes of a row find is in order by their numbers.
#pragma once

#include <cstdint>

#include "gpu/kernels/source.hpp"

namespace heddle::gpu::kernels {

// The rows over the values, of which the first begins `shift` places before them.
template <typename Bits>
struct Cut {
  const unsigned char* begin;
  std::uint64_t shift;
  std::uint64_t end;      // the first place behind the values
  std::uint32_t batches;  // of a warp, in each tile
  std::uint64_t tiles;

  // Into as many tiles as there are, or fewer.
  HEDDLE_DEVICE Cut(const Values& from, std::uint32_t most_tiles) {
    const std::uint64_t before = reinterpret_cast<std::uintptr_t>(from.values) % kRowBytes;
    begin = from.values - before;
    shift = before / sizeof(Bits);
    end = from.count == 0 ? 0 : shift + from.count;
    // Of one batch of each warp. (Divisions of 64 bits would take longer than the first values.)
    const auto least_tiles = static_cast<std::uint32_t>((end + kLeastTile<Bits> - 1) / kLeastTile<Bits>);
    batches = least_tiles == 0 ? 1 : (least_tiles + most_tiles - 1) / most_tiles;
    tiles = (least_tiles + batches - 1) / batches;
  }
  // Of a warp's part of a tile.
  HEDDLE_DEVICE std::uint64_t first_of(std::uint64_t tile, unsigned warp) const {
    return (tile * kWarps + warp) * batches * kBatch<Bits>;
  }
  // Whether the batch that begins there has a value in each place.
  HEDDLE_DEVICE bool is_full(std::uint64_t first) const {
    return first >= shift && first + kBatch<Bits> <= end;
  }
  // Row number `lane` of those from `first` on.
  HEDDLE_DEVICE void prefetch(std::uint64_t first, unsigned lane) const {
    const std::uint64_t row = first + lane * kWarp;
    if (row >= shift && row < end) kernels::prefetch(begin + row * sizeof(Bits));
  }
  // A bit for each lane that has a value in the row that begins there.
  HEDDLE_DEVICE std::uint32_t present(std::uint64_t first) const {
    const std::uint64_t missing = first < shift ? shift - first : 0;
    const std::uint64_t left = first < end ? end - first : 0;
    const std::uint32_t behind = missing < kWarp ? ~0U << missing : 0;
    return left < kWarp ? behind & ((1U << left) - 1) : behind;
  }
};

// What a lane has of a batch.
template <typename Bits>
struct Rows {
  Bits bits[kRows<Bits>];

  // Of the batch whose first place is `first`. Places without a value have zeros: what lies beside the values is not the caller's.
  HEDDLE_DEVICE void load(const Cut<Bits>& cut, std::uint64_t first, unsigned lane) {
    const unsigned char* const at = global(cut.begin + (first + lane) * sizeof(Bits));
    if (cut.is_full(first)) {
      HEDDLE_UNROLLED
      for (unsigned r = 0; r < kRows<Bits>; ++r)
        bits[r] = load_element<Bits>(at + r * kWarp * sizeof(Bits));
      return;
    }
    HEDDLE_UNROLLED
    for (unsigned r = 0; r < kRows<Bits>; ++r) {
      const std::uint64_t place = first + r * kWarp + lane;
      bits[r] = 0;
      if (place >= cut.shift && place < cut.end) bits[r] = load_element<Bits>(at + r * kWarp * sizeof(Bits));
    }
  }
};

}  // namespace heddle::gpu::kernels
