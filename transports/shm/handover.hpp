// Copying into memory that another core reads next.
#pragma once

#include <cstddef>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "transports/shm/small_stores.hpp"

namespace heddle {

// Copies what is handed over, in one of the ways of small_stores.hpp.
class Handover {
 public:
  void use(const SmallStores& stores) { stores_ = stores; }

  // Copies n bytes to `to`, the start of a cache line or in a line with what the reader polls. What is stored
  // before a release store of the caller's is visible before it.
  void operator()(std::byte* to, const std::byte* from, std::size_t n) const {
    if (n >= kLine) {
      const StoreWay way = n >= kLargePayload ? stores_.large : stores_.middle;
      if (way == StoreWay::demoted) return demote(to, from, n);
      if (way == StoreWay::streamed) return stream(to, from, n);
    }
    if (n > 0) std::memcpy(to, from, n);
  }

 private:
  static constexpr std::size_t kLine = 64;

#if defined(__x86_64__)
  using Vector = __m128i;
  static constexpr std::size_t kVectors = kLine / sizeof(Vector);

  // One line through registers; `put(address, vector)` stores.
  template <typename Put>
  static void copy_line(std::byte* to, const std::byte* from, Put&& put) {
    Vector line[kVectors];
    for (std::size_t k = 0; k < kVectors; ++k)
      line[k] = _mm_loadu_si128(reinterpret_cast<const Vector*>(from) + k);
    for (std::size_t k = 0; k < kVectors; ++k)
      put(reinterpret_cast<Vector*>(to) + k, line[k]);
  }

  __attribute__((target("cldemote"))) static void demote(std::byte* to, const std::byte* from,
                                                         std::size_t n) {
    const std::size_t whole = n / kLine * kLine;
    for (std::size_t i = 0; i < whole; i += kLine) {
      copy_line(to + i, from + i, [](Vector* at, Vector v) { _mm_store_si128(at, v); });
      _cldemote(to + i);
    }
    std::memcpy(to + whole, from + whole, n - whole);
  }

  static void stream(std::byte* to, const std::byte* from, std::size_t n) {
    const std::size_t whole = n / kLine * kLine;
    for (std::size_t i = 0; i < whole; i += kLine)
      copy_line(to + i, from + i, [](Vector* at, Vector v) { _mm_stream_si128(at, v); });
    std::memcpy(to + whole, from + whole, n - whole);
    // Streaming stores are not ordered by the release store that follows.
    _mm_sfence();
  }
#else
  static void demote(std::byte* to, const std::byte* from, std::size_t n) {
    std::memcpy(to, from, n);
  }
  static void stream(std::byte* to, const std::byte* from, std::size_t n) {
    std::memcpy(to, from, n);
  }
#endif

  SmallStores stores_ = default_small_stores();
};

// Asks for lines that will be written, while there is nothing else to do.
inline void prefetch_to_write(const std::byte* at, std::size_t n) {
  for (std::size_t i = 0; i < n; i += 64)
    __builtin_prefetch(at + i, 1);
}

}  // namespace heddle
