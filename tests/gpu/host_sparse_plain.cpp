#include <algorithm>
#include <cstring>
#include <numeric>

#include "gpu/kernels/dequantise.hpp"
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

HostEntries host_merge(DType type, const HostEntries& first, const HostEntries& second) {
  const std::size_t width = dtype_size(type);
  const std::vector<std::uint8_t> zero(width);
  HostEntries sum;
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < first.indices.size() || j < second.indices.size()) {
    const std::uint64_t a = i < first.indices.size() ? first.indices[i] : UINT64_MAX;
    const std::uint64_t b = j < second.indices.size() ? second.indices[j] : UINT64_MAX;
    sum.indices.push_back(std::min(a, b));
    sum.values.resize(sum.values.size() + width);
    const std::uint8_t* const left = a <= b ? &first.values[i * width] : &second.values[j * width];
    host_fold(type, Op::sum, &sum.values[sum.values.size() - width],
              {left, a == b ? &second.values[j * width] : zero.data()}, 1);
    i += a <= b ? 1 : 0;
    j += b <= a ? 1 : 0;
  }
  return sum;
}

// By the kernels' host twins, which the tests on the double compare with the library's codecs.
template <class Code>
static HostCodes quantise(std::uint64_t bucket, std::uint64_t seed, std::uint64_t position,
                          const std::vector<float>& gradient, std::vector<float>* residual) {
  namespace k = gpu::kernels;
  const std::uint64_t n = gradient.size();
  if (n == 0) return {};
  bucket = bucket == 0 ? n : std::min(bucket, n);
  const k::Buckets<Code> buckets(n, bucket);
  const std::uint64_t rest = n % bucket;
  HostCodes result{std::vector<std::uint8_t>(n / bucket * buckets.bytes +
                                             (rest > 0 ? k::Buckets<Code>(rest, rest).bytes : 0)),
                   std::vector<float>(n)};
  typename Code::Shared shared;
  Code::quantise(k::Block{0, 1},
                 {gradient.data(), residual != nullptr ? residual->data() : nullptr, n, bucket, position,
                  seed, result.codes.data()},
                 shared);
  std::uint64_t bad = 0;
  const k::DequantiseArguments decode{{result.codes.data()}, 1, result.decoded.data(), n, bucket, &bad};
  for (unsigned thread = 0; thread < k::kThreads; ++thread)
    k::dequantise_share<Code>(decode, {0, 1, thread});
  return result;
}

HostCodes host_quantise(unsigned bits, std::uint64_t bucket, std::uint64_t seed, std::uint64_t position,
                        const std::vector<float>& gradient, std::vector<float>* residual) {
  if (bits == 8) return quantise<gpu::kernels::Levels<8>>(bucket, seed, position, gradient, residual);
  if (bits == 4) return quantise<gpu::kernels::Levels<4>>(bucket, seed, position, gradient, residual);
  if (bits == 2) return quantise<gpu::kernels::Levels<2>>(bucket, seed, position, gradient, residual);
  return quantise<gpu::kernels::Signs>(bucket, seed, position, gradient, residual);
}

const char* host_sparse_name() {
  return "plain loops";
}

}  // namespace heddle::test
