// Between dense vectors and sparse streams. An element is an entry where any of its bits is set: -0, NaN and
// the smallest numbers are. No pointer needs alignment. `type`: is_sparse_value().
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "sparse/stream.hpp"

namespace heddle {

std::size_t count_nonzero(const void* dense, std::size_t count, DType type);

// The entries of `count` elements, with indices from `first` on, to `indices` and `values`, which have room
// for them all, that is for count_nonzero(). Returns how many there are.
std::size_t take_nonzero(const void* dense, std::uint64_t first, std::size_t count, DType type,
                         IndexType index_type, void* indices, void* values);

// Element `index - first` of `dense` becomes the entry's value, for each; the others stay. No index is less
// than `first`.
void scatter(const SparseView& view, std::uint64_t first, void* dense);

// The entries of all parts in a vector of `bytes` bytes, which is zero elsewhere, or stays as it is where it
// `keeps` the rest.
void scatter(std::span<const SparseView> parts, void* dense, std::size_t bytes, bool keeps);

// The part of elements that are not zero, in `samples` evenly spread pieces of 64 bytes, or in all where
// there are no more than that. 0 of nothing. The same vector gives the same number. Costs about a cache miss
// a sample.
double sampled_density(const void* dense, std::size_t count, DType type, std::size_t samples);

// Number `s` of these pieces, for those who cannot read the vector: `count` elements from element `first` on.
// Of a vector that has more than `samples` such pieces. Where it has kEqualParts times as many they are
// equally far apart.
inline constexpr std::size_t kEqualParts = 16;
struct SampledPiece {
  std::size_t first;
  std::size_t count;
};
SampledPiece sampled_piece(std::size_t count, DType type, std::size_t samples, std::size_t s);

}  // namespace heddle
