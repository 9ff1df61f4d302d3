// Copying into memory that another core reads next.
#pragma once

#include <cstddef>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace heddle {

// Below this, plain stores: the lines go from cache to cache. From here on it is cheaper to write past this
// core's cache, so that the reader finds the lines in the shared one (measured on Sapphire Rapids: 8 KiB
// handed over and read in 0.77 us instead of 1.13).
inline constexpr std::size_t kHandoverStreams = 2048;

// Copies n bytes to `to`, which is 16-byte aligned. What is stored before a release store of the caller's is
// visible before it.
inline void hand_over(std::byte* to, const std::byte* from, std::size_t n) {
#if defined(__x86_64__)
  if (n >= kHandoverStreams) {
    constexpr std::size_t kVector = sizeof(__m128i);
    const std::size_t whole = n / (4 * kVector) * (4 * kVector);
    for (std::size_t i = 0; i < whole; i += 4 * kVector) {
      const auto* source = reinterpret_cast<const __m128i*>(from + i);
      auto* target = reinterpret_cast<__m128i*>(to + i);
      const __m128i a = _mm_loadu_si128(source);
      const __m128i b = _mm_loadu_si128(source + 1);
      const __m128i c = _mm_loadu_si128(source + 2);
      const __m128i d = _mm_loadu_si128(source + 3);
      _mm_stream_si128(target, a);
      _mm_stream_si128(target + 1, b);
      _mm_stream_si128(target + 2, c);
      _mm_stream_si128(target + 3, d);
    }
    std::memcpy(to + whole, from + whole, n - whole);
    // Streaming stores are not ordered by the release store that follows.
    _mm_sfence();
    return;
  }
#endif
  if (n > 0) std::memcpy(to, from, n);
}

}  // namespace heddle
