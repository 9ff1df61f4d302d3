// Indices as bits, one for each that there may be, in the host's bytes (src/sparse/index_codec.hpp): bit i
// mod 8 of byte i / 8 is that of the range's index i.
//
// Into bits: since indices are sorted those of a word lie behind each other, and the thread that has the
// first of them makes the word. No thread waits for another, and words without an index are zeros from
// before. Back: bits are counted and their indices written tile by tile (tiles.hpp).
#pragma once

#include <cstdint>

#include "gpu/kernels/sparse_arguments.hpp"
#include "gpu/kernels/tiles.hpp"

namespace heddle::gpu::kernels {

// ---- Into bits

template <class Index>
HEDDLE_DEVICE std::uint64_t place_in_range(const PackBitmapArguments& a, std::uint64_t i) {
  return load_element<Index>(a.indices + i * sizeof(Index)) - a.first;
}

template <class Index>
HEDDLE_DEVICE void pack_bitmap_share(const PackBitmapArguments& a, const Thread& thread) {
  constexpr std::uint64_t kBits = 32;
  const std::uint64_t threads = thread.blocks * kThreads;
  for (std::uint64_t i = thread.block * kThreads + thread.index; i < a.count; i += threads) {
    std::uint64_t at = place_in_range<Index>(a, i);
    const std::uint64_t word = at / kBits;
    if (at >= a.span || (i > 0 && place_in_range<Index>(a, i - 1) / kBits == word)) continue;
    std::uint32_t bits = 0;
    for (std::uint64_t k = i; at < a.span && at / kBits == word;) {
      bits |= 1U << at % kBits;
      if (++k == a.count) break;
      at = place_in_range<Index>(a, k);
    }
    const std::uint64_t left = a.span / 8 + (a.span % 8 != 0 ? 1 : 0) - word * sizeof bits;
    store_bytes(a.codes + word * sizeof bits, bits, left < sizeof bits ? static_cast<unsigned>(left) : 4);
  }
}

// ---- And back

struct BitmapShared : TileShared {
  std::uint64_t totals[kWarps];
  std::uint16_t places[8 * kBitmapTile];  // in the tile, of the bits that are set
};

// The bits from place `from` on, up to 64. False where one behind the range is set.
HEDDLE_DEVICE inline bool load_bits(const UnpackArguments& a, std::uint64_t from, std::uint64_t& bits) {
  bits = 0;
  if (from >= a.span) return true;
  const std::uint64_t left = a.span - from;
  if (left >= 8 * kBitmapBytes) {
    bits = load_element<std::uint64_t>(a.codes + from / 8);
    return true;
  }
  for (unsigned byte = 0; 8 * byte < left; ++byte)
    bits |= std::uint64_t{a.codes[from / 8 + byte]} << 8 * byte;
  return bits >> left == 0;
}

HEDDLE_DEVICE inline std::uint32_t half_of(std::uint64_t bits, unsigned half) {
  return static_cast<std::uint32_t>(bits >> 32 * half);
}

// From the thread's first one on.
HEDDLE_DEVICE inline void list_places(std::uint64_t bits, unsigned thread, std::uint16_t* to) {
  for (unsigned half = 0; half < 2; ++half) {
    const unsigned first = 8 * kBitmapBytes * thread + 32 * half;
    for (std::uint32_t rest = half_of(bits, half); rest != 0; rest &= rest - 1)
      *to++ = static_cast<std::uint16_t>(first + ones((rest & (0 - rest)) - 1));
  }
}

template <class Index>
HEDDLE_DEVICE void unpack_bitmap(const Block& block, const UnpackArguments& a, BitmapShared& shared) {
  Workspace& work = *a.workspace;
  const std::uint64_t all_tiles = a.span / (8 * kBitmapTile) + (a.span % (8 * kBitmapTile) != 0 ? 1 : 0);
  const std::uint64_t tiles = tiles_here(a, all_tiles);
  const std::uint64_t so_far = a.is_first != 0 ? 0 : work.above;

  take_first_tile(block, work, shared);
  for (std::uint64_t tile = shared.tile; tile < tiles; tile = shared.tile) {
    const std::uint64_t first = (a.first_tile + tile) * 8 * kBitmapTile;
    Each<std::uint64_t> bits;
    Each<std::uint64_t> before;
    std::uint64_t next = 0;  // the first thread's alone
    block.alone([&](unsigned thread) {
      if (!load_bits(a, first + 8 * kBitmapBytes * thread, bits[thread])) store_shared_word(a.bad, 1);
      if (thread == 0) next = add_to_word(&work.ticket, 1);
      before[thread] = ones(half_of(bits[thread], 0)) + ones(half_of(bits[thread], 1));
    });
    block.scan_warps(before, shared.totals);
    place_tile(block, work, tile, next, shared,
               [&](const Warp& /*warp*/) { return Tile::counts(sum_of(shared.totals, kWarps), 0); });
    block.each([&](unsigned thread) {
      list_places(bits[thread], thread,
                  shared.places + sum_of(shared.totals, thread / kWarp) + before[thread]);
    });
    block.each([&](unsigned thread) {
      const std::uint64_t count = sum_of(shared.totals, kWarps);
      const std::uint64_t start = so_far + Tile::above(shared.before);
      for (std::uint64_t k = thread; k < count && start + k < a.count; k += kThreads)
        store_element(a.indices + (start + k) * sizeof(Index),
                      static_cast<Index>(a.first + first + shared.places[k]));
    });
  }
  finish_tiles(block, a, tiles, 0, shared);
  finish_unpacking(block, a, all_tiles, tiles, shared);
}

}  // namespace heddle::gpu::kernels
