// The indices of a chunk on the wire, in each of the forms that have any: docs/sparse.md. Sizes, headers and
// values are the business of wire.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "sparse/stream.hpp"
#include "sparse/wire.hpp"

namespace heddle {

// Bytes of an index in a list.
constexpr std::size_t list_width(std::uint64_t span) {
  return span <= 0x10000 ? 2 : span <= 0x100000000 ? 4 : 8;
}
constexpr std::uint64_t bitmap_bytes(std::uint64_t span) {
  return span / 8 + (span % 8 != 0 ? 1 : 0);
}
std::uint64_t delta_bytes(const SparseView& view, const ChunkRange& range);
// No less than delta_bytes(), without looking at the indices.
constexpr std::size_t delta_bytes_at_most(const SparseView& view, const ChunkRange& range) {
  return (range.end - range.begin) * (view.index_type == IndexType::u32 ? 5 : 10);
}

// Writes the indices to the start of `to`, which is all zeros and holds them (a delta chunk's at most);
// returns their bytes.
std::size_t pack_indices(const SparseView& view, const ChunkRange& range, Encoding encoding,
                         std::span<std::byte> to);

// Reads all of `chunk.count` indices, whose bytes may be anything. False where they do not rise strictly
// within the range, or are more or fewer; `out` may have been written to then.
bool unpack_indices_to(const WireChunk& chunk, IndexType type, void* out);

}  // namespace heddle
