// How blocks read the vector that entries are selected from: tiles of whole 16 bytes, whatever address it begins at.
#pragma once

#include <cstdint>
#include <cstring>

#include "gpu/kernels/block.hpp"
#include "gpu/kernels/sparse_arguments.hpp"

namespace heddle::gpu::kernels {

// What there is to read: the vector, or the list in its place.
struct Values {
  const unsigned char* values;
  std::uint64_t count;
  const unsigned char* indices;  // of the values; null: they are in their places
};

HEDDLE_DEVICE inline Values values_of(const Source& source, const Search& search) {
  if (source.list_indices != nullptr && search.listed <= source.list_capacity &&
      search.listed >= search.least)
    return {source.list_values, search.listed, source.list_indices};
  return {source.values, source.count, nullptr};
}

// The vectors of 16 bytes over the values, of which the first begins `shift` places before them.
template <typename Bits>
struct Grid {
  static constexpr unsigned kEach = sizeof(Vector) / sizeof(Bits);  // places in a vector
  const unsigned char* begin;
  std::uint64_t shift;
  std::uint64_t end;  // the first place behind the values
  std::uint64_t vectors;
  std::uint64_t tiles;

  HEDDLE_DEVICE explicit Grid(const Values& from) {
    const std::uint64_t before = reinterpret_cast<std::uintptr_t>(from.values) % sizeof(Vector);
    begin = from.values - before;
    shift = before / sizeof(Bits);
    end = shift + from.count;
    vectors = from.count == 0 ? 0 : (end + kEach - 1) / kEach;
    tiles = (vectors + kTileVectors - 1) / kTileVectors;
  }
};

// A bit for each place that a thread has of a tile: kSpan v + e is that of place e of its vector v.
using Places = std::uint32_t;
inline constexpr unsigned kSpan = 8;
static_assert(kSpan * kInFlight == 32 && sizeof(Vector) / sizeof(std::uint16_t) == kSpan);

// What a thread has of a tile: vector v is the tile's vector v kThreads + thread, so that neighbours read neighbours.
template <typename Bits>
struct Share {
  static constexpr unsigned kEach = Grid<Bits>::kEach;
  static constexpr Places kWhole = (1U << kEach) - 1;
  Vector vectors[kInFlight];
  Places present = 0;  // where there is a value; the others are 0

  HEDDLE_DEVICE void load(const Grid<Bits>& grid, std::uint64_t tile, unsigned thread) {
    const std::uint64_t begin = tile * kTileVectors;
    // All but the first and the last.
    if (begin * kEach >= grid.shift && (begin + kTileVectors) * kEach <= grid.end) {
      const unsigned char* const at = grid.begin + (begin + thread) * sizeof(Vector);
      HEDDLE_UNROLLED
      for (unsigned v = 0; v < kInFlight; ++v)
        vectors[v] = load_vector(at + v * kThreads * sizeof(Vector));
      present = kWhole * 0x01010101U;
      return;
    }
    HEDDLE_UNROLLED
    for (unsigned v = 0; v < kInFlight; ++v) {
      const std::uint64_t vector = begin + v * kThreads + thread;
      const bool is_whole = vector * kEach >= grid.shift && (vector + 1) * kEach <= grid.end;
      if (is_whole) {
        vectors[v] = load_vector(grid.begin + vector * sizeof(Vector));
        present |= kWhole << kSpan * v;
      } else {
        load_part(grid, vector, v);
      }
    }
  }
  HEDDLE_DEVICE Bits bits(unsigned v, unsigned place) const {
    Bits stored[kEach];
    std::memcpy(stored, &vectors[v], sizeof vectors[v]);
    return stored[place];
  }

 private:
  // The first, the last, or none: what lies beside the values is not the caller's.
  HEDDLE_DEVICE void load_part(const Grid<Bits>& grid, std::uint64_t vector, unsigned v) {
    Bits stored[kEach] = {};
    HEDDLE_UNROLLED
    for (unsigned e = 0; e < kEach; ++e) {
      const std::uint64_t place = vector * kEach + e;
      if (place < grid.shift || place >= grid.end) continue;
      stored[e] = load_element<Bits>(grid.begin + place * sizeof(Bits));
      present |= 1U << (kSpan * v + e);
    }
    std::memcpy(&vectors[v], stored, sizeof vectors[v]);
  }
};

}  // namespace heddle::gpu::kernels
