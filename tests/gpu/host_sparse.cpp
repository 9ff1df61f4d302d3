#include "host_sparse.hpp"

#include <algorithm>
#include <cstring>
#include <span>

#include "compress/codec.hpp"
#include "compress/kernels.hpp"
#include "compress/residual.hpp"
#include "compress/select.hpp"
#include "sparse/convert.hpp"
#include "sparse/index_codec.hpp"
#include "sparse/merge.hpp"
#include "sparse/wire.hpp"

namespace heddle::test {
namespace {

template <typename Value>
HostEntries as_entries(std::vector<std::uint64_t> indices, const std::vector<Value>& values) {
  HostEntries entries{std::move(indices), {}};
  entries.values.resize(values.size() * sizeof(Value));
  if (!values.empty()) std::memcpy(entries.values.data(), values.data(), entries.values.size());
  return entries;
}

Codec codec_of(const gpu::Quantiser& how) {
  if (how.bits == 16) return how.is_bf16 ? Codec::bf16 : Codec::f16;
  if (how.bits == 8) return Codec::qsgd8;
  if (how.bits == 4) return Codec::qsgd4;
  return how.bits == 2 ? Codec::ternary : Codec::sign;
}

Encoding encoding_of(IndexCode code) {
  return code == IndexCode::bitmap ? Encoding::bitmap : Encoding::delta;
}

}  // namespace

HostEntries host_nonzero(DType type, const void* values, std::size_t n) {
  const std::size_t found = count_nonzero(values, n, type);
  HostEntries entries;
  entries.indices.resize(found);
  entries.values.resize(found * dtype_size(type));
  take_nonzero(values, 0, n, type, IndexType::u64, entries.indices.data(), entries.values.data());
  return entries;
}

HostEntries host_magnitudes(const float* values, std::size_t n, std::uint32_t least) {
  // The host's loop takes what is not zero, and wants 64 places more.
  std::vector<std::uint64_t> indices(n + 64);
  std::vector<float> taken(n + 64);
  std::size_t found = n;
  if (least == 0) {
    for (std::size_t i = 0; i < n; ++i)
      indices[i] = i;
    std::copy(values, values + n, taken.begin());
  } else {
    found = compress::collect(values, 0, n, least, indices.data(), taken.data(), taken.size()).taken;
  }
  indices.resize(found);
  taken.resize(found);
  return as_entries(std::move(indices), taken);
}

HostEntries host_top_k(const float* values, std::size_t n, std::size_t k) {
  const SelectedEntries selected = top_k(values, n, k);
  std::vector<std::uint64_t> indices(selected.indices.size());
  for (std::size_t i = 0; i < indices.size(); ++i)
    indices[i] = selected.indices[i];
  return as_entries(std::move(indices), selected.values);
}

HostEntries host_merge(DType type, Op op, const HostEntries& first, const HostEntries& second) {
  const auto view = [type](const HostEntries& entries) {
    return SparseView{UINT64_MAX, entries.indices.size(), IndexType::u64,
                      type,       entries.indices.data(), entries.values.data()};
  };
  HostEntries merged;
  merged.indices.resize(first.indices.size() + second.indices.size());
  merged.values.resize(first.values.size() + second.values.size());
  const SparseView both[] = {view(first), view(second)};
  merged.indices.resize(fold_sparse(both, op, merged.indices.data(), merged.values.data()));
  merged.values.resize(merged.indices.size() * dtype_size(type));
  return merged;
}

HostCodes host_quantise(const gpu::Quantiser& how, std::uint64_t position, const std::vector<float>& gradient,
                        std::vector<float>* residual) {
  const CodecSettings settings{codec_of(how), static_cast<std::uint32_t>(how.bucket), how.seed};
  const std::size_t n = gradient.size();
  Residual kept(n);
  std::vector<float> sum = gradient;
  if (residual != nullptr) {
    std::copy(residual->begin(), residual->end(), kept.values().begin());
    kept.compensate(gradient.data(), sum.data());
  }
  HostCodes result{std::vector<std::uint8_t>(coded_bytes(settings, n)), std::vector<float>(n)};
  const auto bytes = std::as_writable_bytes(std::span(result.codes));
  encode(settings, sum.data(), n, position, bytes.data());
  if (!decode(settings, bytes, result.decoded.data(), n).ok()) result.codes.clear();
  if (residual == nullptr) return result;
  kept.keep(sum.data(), result.decoded.data());
  std::copy(kept.values().begin(), kept.values().end(), residual->begin());
  return result;
}

std::vector<std::uint8_t> host_pack(IndexCode code, const std::vector<std::uint64_t>& indices,
                                    const gpu::IndexRange& range, bool wide) {
  const std::vector<std::uint32_t> narrow(indices.begin(), indices.end());
  SparseView view;
  view.count = indices.size();
  view.index_type = wide ? IndexType::u64 : IndexType::u32;
  view.indices = wide ? static_cast<const void*>(indices.data()) : narrow.data();
  const ChunkRange chunk{range.first, range.span, 0, indices.size()};
  std::vector<std::uint8_t> codes(code == IndexCode::bitmap ? bitmap_bytes(range.span)
                                                            : delta_bytes_at_most(view, chunk));
  codes.resize(pack_indices(view, chunk, encoding_of(code), std::as_writable_bytes(std::span(codes))));
  return codes;
}

bool host_unpack(IndexCode code, const std::vector<std::uint8_t>& codes, const gpu::IndexRange& range,
                 bool wide, std::vector<std::uint64_t>* indices) {
  WireChunk chunk;
  chunk.encoding = encoding_of(code);
  chunk.first = range.first;
  chunk.span = range.span;
  chunk.count = indices->size();
  chunk.indices = std::as_bytes(std::span(codes));
  if (wide) return unpack_indices(chunk, IndexType::u64, indices->data()).ok();
  std::vector<std::uint32_t> narrow(indices->size());
  const bool is_right = unpack_indices(chunk, IndexType::u32, narrow.data()).ok();
  indices->assign(narrow.begin(), narrow.end());
  return is_right;
}

const char* host_sparse_name() {
  return "the library's";
}

}  // namespace heddle::test
