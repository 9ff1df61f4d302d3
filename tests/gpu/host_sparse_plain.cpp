#include <algorithm>
#include <cstring>
#include <numeric>

#include "gpu/kernels/dequantise.hpp"
#include "gpu/kernels/halves.hpp"
#include "gpu/kernels/signs.hpp"
#include "host_fold.hpp"
#include "host_sparse.hpp"

namespace heddle::test {
namespace {

constexpr std::uint32_t kMagnitude = 0x7FFFFFFFU;
constexpr std::uint32_t kNan = 0x7F800001U;  // of all NaNs

template <class Takes>
HostEntries take(const void* values, std::size_t n, std::size_t width, Takes takes) {
  HostEntries found;
  const auto* from = static_cast<const std::uint8_t*>(values);
  for (std::size_t i = 0; i < n; ++i) {
    if (!takes(i)) continue;
    found.indices.push_back(i);
    found.values.insert(found.values.end(), from + i * width, from + (i + 1) * width);
  }
  return found;
}

std::uint32_t magnitude(const float* value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, value, sizeof bits);
  return bits & kMagnitude;
}

}  // namespace

HostEntries host_nonzero(DType type, const void* values, std::size_t n) {
  const std::size_t width = dtype_size(type);
  const auto* from = static_cast<const std::uint8_t*>(values);
  return take(values, n, width, [&](std::size_t i) {
    return std::any_of(from + i * width, from + (i + 1) * width, [](std::uint8_t byte) { return byte != 0; });
  });
}

HostEntries host_magnitudes(const float* values, std::size_t n, std::uint32_t least) {
  return take(values, n, sizeof(float), [&](std::size_t i) { return magnitude(values + i) >= least; });
}

HostEntries host_top_k(const float* values, std::size_t n, std::size_t k) {
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto key = [&](std::size_t i) { return std::min(magnitude(values + i), kNan); };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return key(a) > key(b); });
  std::vector<bool> is_taken(n);
  for (std::size_t i = 0; i < std::min(n, k); ++i)
    is_taken[order[i]] = key(order[i]) != 0;
  return take(values, n, sizeof(float), [&](std::size_t i) { return is_taken[i]; });
}

HostEntries host_merge(DType type, Op op, const HostEntries& first, const HostEntries& second) {
  const std::size_t width = dtype_size(type);
  const std::vector<std::uint8_t> zero(width);
  HostEntries merged;
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < first.indices.size() || j < second.indices.size()) {
    const std::uint64_t a = i < first.indices.size() ? first.indices[i] : UINT64_MAX;
    const std::uint64_t b = j < second.indices.size() ? second.indices[j] : UINT64_MAX;
    merged.indices.push_back(std::min(a, b));
    const std::uint8_t* const left = a <= b ? &first.values[i * width] : &second.values[j * width];
    merged.values.insert(merged.values.end(), left, left + width);
    if (a == b || op == Op::sum)
      host_fold(type, op, &merged.values[merged.values.size() - width],
                {left, a == b ? &second.values[j * width] : zero.data()}, 1);
    i += a <= b ? 1 : 0;
    j += b <= a ? 1 : 0;
  }
  return merged;
}

// By the kernels' host twins, which the tests on the double compare with the library's codecs.
template <class Code>
static HostCodes quantise(const gpu::Quantiser& how, std::uint64_t position,
                          const std::vector<float>& gradient, std::vector<float>* residual) {
  namespace k = gpu::kernels;
  const std::uint64_t n = gradient.size();
  if (n == 0) return {};
  const std::uint64_t bucket = how.bucket_length(n);
  HostCodes result{std::vector<std::uint8_t>(how.coded_bytes(n)), std::vector<float>(n)};
  typename Code::Shared shared;
  float* const kept = residual != nullptr ? residual->data() : nullptr;
  Code::quantise(k::Block{0, 1},
                 {gradient.data(), kept, kept, n, bucket, position, how.seed, result.codes.data()}, shared);
  std::uint64_t bad = 0;
  const k::DequantiseArguments decode{{result.codes.data()}, 1, result.decoded.data(), n, bucket, &bad};
  for (unsigned thread = 0; thread < k::kThreads; ++thread)
    k::dequantise_share<Code>(decode, {0, 1, thread});
  return result;
}

HostCodes host_quantise(const gpu::Quantiser& how, std::uint64_t position, const std::vector<float>& gradient,
                        std::vector<float>* residual) {
  namespace k = gpu::kernels;
  if (how.bits == 16 && how.is_bf16)
    return quantise<k::Halves<k::BrainFloat>>(how, position, gradient, residual);
  if (how.bits == 16) return quantise<k::Halves<k::Half>>(how, position, gradient, residual);
  if (how.bits == 8) return quantise<k::Levels<8>>(how, position, gradient, residual);
  if (how.bits == 4) return quantise<k::Levels<4>>(how, position, gradient, residual);
  if (how.bits == 2) return quantise<k::Levels<2>>(how, position, gradient, residual);
  return quantise<k::Signs>(how, position, gradient, residual);
}

std::vector<std::uint8_t> host_pack(IndexCode code, const std::vector<std::uint64_t>& indices,
                                    const gpu::IndexRange& range, bool /*wide*/) {
  std::vector<std::uint8_t> codes;
  if (code == IndexCode::bitmap) {
    codes.resize(range.span / 8 + (range.span % 8 != 0 ? 1 : 0));
    for (const std::uint64_t index : indices)
      codes[(index - range.first) / 8] |= static_cast<std::uint8_t>(1U << (index - range.first) % 8);
    return codes;
  }
  std::uint64_t least = range.first;
  for (const std::uint64_t index : indices) {
    std::uint64_t gap = index - least;
    for (; gap >= 0x80; gap >>= 7)
      codes.push_back(static_cast<std::uint8_t>(gap | 0x80));
    codes.push_back(static_cast<std::uint8_t>(gap));
    least = index + 1;
  }
  return codes;
}

static bool unpack_bits(const std::vector<std::uint8_t>& codes, const gpu::IndexRange& range,
                        std::vector<std::uint64_t>* indices) {
  std::size_t found = 0;
  for (std::uint64_t at = 0; at < 8 * codes.size(); ++at) {
    if ((codes[at / 8] >> at % 8 & 1) == 0) continue;
    if (at >= range.span || found == indices->size()) return false;
    (*indices)[found++] = range.first + at;
  }
  return found == indices->size();
}

// One number after the other.
static bool unpack_gaps(const std::vector<std::uint8_t>& codes, const gpu::IndexRange& range,
                        std::vector<std::uint64_t>* indices) {
  std::size_t at = 0;
  std::uint64_t least = 0;
  for (std::uint64_t& index : *indices) {
    std::uint64_t number = 0;
    std::size_t length = 0;
    for (bool more = true; more; ++length) {
      if (at + length == codes.size() || length == 10) return false;
      const std::uint64_t bits = codes[at + length] & 0x7FU;
      more = (codes[at + length] & 0x80U) != 0;
      if ((length == 9 && bits > 1) || (!more && length > 0 && bits == 0)) return false;
      number |= bits << 7 * length;
    }
    at += length;
    if (least >= range.span || number >= range.span - least) return false;
    index = range.first + least + number;
    least += number + 1;
  }
  return at == codes.size();
}

bool host_unpack(IndexCode code, const std::vector<std::uint8_t>& codes, const gpu::IndexRange& range,
                 bool /*wide*/, std::vector<std::uint64_t>* indices) {
  return code == IndexCode::bitmap ? unpack_bits(codes, range, indices) : unpack_gaps(codes, range, indices);
}

const char* host_sparse_name() {
  return "plain loops";
}

}  // namespace heddle::test
