// What a part of a sparse stream looks like on the wire: docs/sparse.md, byte for byte. Each chunk is written
// in the form that takes the fewest bytes for the entries that are really there, and read with full
// validation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "sparse/stream.hpp"

namespace heddle {

enum class Encoding : std::uint8_t {
  dense,   // every value of the range, each of which has an entry
  list,    // the distance of each index from the start of the range, then the values
  delta,   // the distance of each index from the one before it, in as few bytes as it needs, then the values
  bitmap,  // a bit for each index of the range, then the values
};
const char* encoding_name(Encoding encoding);

inline constexpr std::size_t kChunkHeader = 40;

// Indices [first, first + span) of a vector: entries [begin, end) of `view`, whose indices all lie there.
struct ChunkRange {
  std::uint64_t first = 0;
  std::uint64_t span = 0;
  std::size_t begin = 0;
  std::size_t end = 0;
};

// Bytes of the chunk in this form, header included; a multiple of 8. SIZE_MAX where that does not fit a size,
// and for the dense form where an index of the range has no entry.
std::size_t encoded_bytes(const SparseView& view, const ChunkRange& range, Encoding encoding);
// The form that takes the fewest bytes; of equal ones the first above.
Encoding smallest_encoding(const SparseView& view, const ChunkRange& range);

// Appends the chunk to `out`, which is at a multiple of 8 bytes. In a form in which it has bytes.
void encode_chunk(const SparseView& view, const ChunkRange& range, Encoding encoding,
                  std::vector<std::byte>& out);

// A chunk as it was received, looked at but not unpacked. Borrows the bytes.
struct WireChunk {
  Encoding encoding = Encoding::list;
  DType value_type = DType::f32;
  std::uint64_t first = 0;
  std::uint64_t span = 0;
  std::size_t count = 0;
  std::span<const std::byte> indices;
  std::span<const std::byte> values;
  std::size_t bytes = 0;  // of the whole chunk
};

// The chunk that `bytes` begin with; more may follow. Whatever the bytes are: a chunk whose range lies within
// [0, dimension) and whose parts are all there, or `invalid_argument` and what is wrong. What its indices are
// is for unpack_indices() to see.
Result<WireChunk> parse_chunk(std::span<const std::byte> bytes, std::uint64_t dimension);

// Writes the chunk's `count` indices, in every form, to `out`, which needs no alignment. Afterwards they are
// known to rise strictly and to lie in the chunk's range; `invalid_argument` where they do not, with any
// numbers in `out`, or where they might not fit the type.
Status unpack_indices(const WireChunk& chunk, IndexType type, void* out);

}  // namespace heddle
