// Sums of streams that lie densely: entries are added into a short dense vector, a tile, and those that were
// touched are then taken out in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.hpp"
#include "sparse/stream.hpp"
#include "sparse/stream_cursor.hpp"

namespace heddle {

// Indices of a tile: sums and counts of f32 stay in the first level of cache.
inline constexpr std::size_t kTile = 8192;
// Streams that a tile can count.
inline constexpr std::size_t kTileStreams = 255;

struct TileScratch {
  static constexpr std::size_t kSlack = 64;
  // Neutral elements between calls: -0, which added to anything leaves its bits, or the integer 0.
  alignas(64) std::byte sums[(kTile + kSlack) * 8];
  std::uint8_t counts[kTile + kSlack];       // how many streams have the index; 0 between calls
  std::byte wide[(kTile + 2 * kSlack) * 4];  // sums of f16 and bf16 before they are rounded
};

// Brings fresh memory into the form that sums of this type want.
void clear_tile(TileScratch& tile, DType type);

// Writes the sums of the entries with indices in [base, base + kTile) and passes over them; returns how many
// there are. No stream has an entry before `base`; 2 to kTileStreams streams. Up to `sink.room` entries may
// be overwritten.
using TileFn = std::size_t (*)(TileScratch& tile, std::span<StreamCursor> streams, std::uint64_t base,
                               const Sink& sink);

// For a type of sparse values. Resolves the instruction set.
TileFn tile_sum(DType type, IndexType index_type);

}  // namespace heddle
