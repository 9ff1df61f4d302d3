// How blocks read the vector that entries are selected from: tiles of whole 16 bytes, whatever address it
// begins at.
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
  if (source.list_indices != nullptr && search.listed <= source.list_capacity)
    return {source.list_values, search.listed, source.list_indices};
  return {source.values, source.count, nullptr};
}

template <typename Bits>
HEDDLE_DEVICE Bits key_of(Bits bits, Bits mask, Bits ceiling) {
  const Bits magnitude = bits & mask;
  return magnitude < ceiling ? magnitude : ceiling;
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

  // `alignment`: of the first one. Multiples of 16 bytes.
  HEDDLE_DEVICE explicit Grid(const Values& from, std::uint64_t alignment = sizeof(Vector)) {
    const std::uint64_t before = reinterpret_cast<std::uintptr_t>(from.values) % alignment;
    begin = from.values - before;
    shift = before / sizeof(Bits);
    end = shift + from.count;
    vectors = from.count == 0 ? 0 : (end + kEach - 1) / kEach;
    tiles = (vectors + kTileVectors - 1) / kTileVectors;
  }
  // Whether each place of these vectors has a value.
  HEDDLE_DEVICE bool is_full(std::uint64_t first, unsigned many) const {
    return first * kEach >= shift && (first + many) * kEach <= end;
  }
};

// A bit for each place that a thread has of a tile: kSpan v + e is that of place e of its vector v.
using Places = std::uint32_t;
inline constexpr unsigned kSpan = 8;
static_assert(kSpan * kInFlight == 32 && sizeof(Vector) / sizeof(std::uint16_t) == kSpan);

// What a thread has of some vectors behind each other: of neighbours who read neighbours each has the first
// in its place, and others as many further on as there are neighbours.
template <typename Bits>
struct Share {
  static constexpr unsigned kEach = Grid<Bits>::kEach;
  static constexpr Places kWhole = (1U << kEach) - 1;
  Vector vectors[kInFlight];
  Places present = 0;  // where there is a value; the others are 0

  // Thread number `own` of `step`, of `many` vectors from `first` on.
  HEDDLE_DEVICE void load(const Grid<Bits>& grid, std::uint64_t first, unsigned many, unsigned own,
                          unsigned step) {
    // All but the first and the last.
    if (grid.is_full(first, many)) {
      const unsigned char* const at = global(grid.begin + (first + own) * sizeof(Vector));
      HEDDLE_UNROLLED
      for (unsigned v = 0; v < kInFlight; ++v)
        vectors[v] = load_vector(at + v * step * sizeof(Vector));
      present = kWhole * 0x01010101U;
      return;
    }
    present = 0;
    HEDDLE_UNROLLED
    for (unsigned v = 0; v < kInFlight; ++v) {
      const std::uint64_t vector = first + v * step + own;
      if (grid.is_full(vector, 1)) {
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
