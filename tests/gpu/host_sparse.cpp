#include "host_sparse.hpp"

#include <algorithm>
#include <cstring>
#include <span>

#include "compress/codec.hpp"
#include "compress/kernels.hpp"
#include "compress/residual.hpp"
#include "compress/select.hpp"
#include "sparse/convert.hpp"
#include "sparse/merge.hpp"

namespace heddle::test {
namespace {

template <typename Value>
HostEntries as_entries(std::vector<std::uint64_t> indices, const std::vector<Value>& values) {
  HostEntries entries{std::move(indices), {}};
  entries.values.resize(values.size() * sizeof(Value));
  if (!values.empty()) std::memcpy(entries.values.data(), values.data(), entries.values.size());
  return entries;
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

HostEntries host_merge(DType type, const HostEntries& first, const HostEntries& second) {
  const auto view = [type](const HostEntries& entries) {
    return SparseView{UINT64_MAX, entries.indices.size(), IndexType::u64,
                      type,       entries.indices.data(), entries.values.data()};
  };
  HostEntries sum;
  sum.indices.resize(first.indices.size() + second.indices.size());
  sum.values.resize(first.values.size() + second.values.size());
  sum.indices.resize(merge_sparse(view(first), view(second), Op::sum, sum.indices.data(), sum.values.data()));
  sum.values.resize(sum.indices.size() * dtype_size(type));
  return sum;
}

HostCodes host_quantise(unsigned bits, std::uint64_t bucket, std::uint64_t seed, std::uint64_t position,
                        const std::vector<float>& gradient, std::vector<float>* residual) {
  const CodecSettings settings{bits == 8   ? Codec::qsgd8
                               : bits == 4 ? Codec::qsgd4
                               : bits == 2 ? Codec::ternary
                                           : Codec::sign,
                               static_cast<std::uint32_t>(bucket), seed};
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

const char* host_sparse_name() {
  return "the library's";
}

}  // namespace heddle::test
