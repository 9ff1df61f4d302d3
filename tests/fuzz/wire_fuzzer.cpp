// A sparse chunk may be anything: it is refused with a sentence, or it keeps its promises and comes out the
// same when written again in its own form.
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
  std::vector<std::uint64_t> indices(chunk->count);
  std::vector<std::uint32_t> narrow(chunk->count);
  const Status status = unpack_indices(chunk.value(), IndexType::u64, indices.data());
  const Status narrow_status = unpack_indices(chunk.value(), IndexType::u32, narrow.data());
  const bool fits = chunk->first + chunk->span <= std::uint64_t{1} << 32;
  if (narrow_status.ok() != (status.ok() && fits)) std::abort();
  if (!status.ok()) {
    if (status.message().empty()) std::abort();
    return 0;
  }
  const SparseView view{chunk->first + chunk->span, indices.size(), IndexType::u64,
                        chunk->value_type,          indices.data(), chunk->values.data()};
  if (!check_sparse(view).ok() || (!indices.empty() && indices[0] < chunk->first)) std::abort();
  for (std::size_t i = 0; fits && i < indices.size(); ++i)
    if (narrow[i] != indices[i]) std::abort();
  std::vector<std::byte> again;
  const ChunkRange range{chunk->first, chunk->span, 0, indices.size()};
  encode_chunk(view, range, chunk->encoding, again);
  const auto back = parse_chunk(again, kDimension);
  if (!back.ok() || back->count != chunk->count || again.size() != chunk->bytes) std::abort();
  std::vector<std::uint64_t> same(back->count);
  if (!unpack_indices(back.value(), IndexType::u64, same.data()).ok() || same != indices) std::abort();
  return 0;
}
