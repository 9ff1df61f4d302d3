// A sparse chunk may be anything: it is refused with a sentence, or it keeps its promises and comes out the same when written
// again in its own form.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "sparse/wire.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace heddle;
  constexpr std::uint64_t kDimension = std::uint64_t{1} << 40;
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto chunk = parse_chunk(bytes, kDimension);
  if (!chunk.ok()) {
    if (chunk.status().message().empty()) std::abort();
    return 0;
  }
  if (chunk->bytes > size) std::abort();
  if (chunk->encoding == Encoding::dense) return 0;
  std::vector<std::uint64_t> indices;
  unpack_indices(chunk.value(), indices);
  const SparseView view{kDimension,        indices.size(), IndexType::u64,
                        chunk->value_type, indices.data(), chunk->values.data()};
  if (indices.size() != chunk->count || !check_sparse(view).ok()) std::abort();
  std::vector<std::byte> again;
  const ChunkRange range{chunk->first, chunk->span, 0, indices.size()};
  encode_chunk(view, range, chunk->encoding, again);
  const auto back = parse_chunk(again, kDimension);
  if (!back.ok() || back->count != chunk->count || again.size() != chunk->bytes) std::abort();
  return 0;
}
