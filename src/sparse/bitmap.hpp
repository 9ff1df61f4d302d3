// Which indices of a vector have an entry, one bit for each: for streams whose entries lie so densely that
// bits take less room than indices, and are quicker to go through. Bit i mod 64 of word i / 64 is that of
// index i.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sparse/stream.hpp"

namespace heddle {

inline constexpr std::uint64_t kWordIndices = 64;
constexpr std::uint64_t bitmap_words(std::uint64_t dimension) {
  return dimension / kWordIndices + (dimension % kWordIndices != 0 ? 1 : 0);
}

// Sets the words of the dimension by the stream's indices, in one pass over them; false where they break the
// contract, and then the words are of no use. At the speed of memory where nothing is missing, about a cycle
// an entry otherwise.
bool mark_entries(const SparseView& stream, std::uint64_t* words);

// Values that lie side by side, as in a stream, and in their places in a vector, as the words say. No pointer
// but `words` needs alignment.
struct BitmapKernels {
  // To their places, 0 between them; returns how many there are. Reads no more than them.
  std::size_t (*spread)(const std::uint64_t* words, std::size_t n, const std::byte* packed, std::byte* dense);
  // From their places; may write kPackSlack bytes behind them.
  std::size_t (*pack)(const std::uint64_t* words, std::size_t n, const std::byte* dense, std::byte* packed);
  // The indices, where that of the first bit is `first`; may write kPackSlack bytes behind them.
  std::size_t (*indices)(const std::uint64_t* words, std::size_t n, std::uint64_t first, std::byte* to);
};
inline constexpr std::size_t kPackSlack = 64;
// Resolves the instruction set.
BitmapKernels bitmap_kernels(DType value_type, IndexType index_type);

std::size_t count_bits(const std::uint64_t* words, std::size_t n);

// A copy past the cache: of what is in it, to where nobody reads soon. Complete, as seen by other threads,
// with any store after it.
void streamed_copy(void* to, const void* from, std::size_t bytes);

}  // namespace heddle
