#include <algorithm>
#include <cstring>
#include <numeric>

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

const char* host_sparse_name() {
  return "plain loops";
}

}  // namespace heddle::test
