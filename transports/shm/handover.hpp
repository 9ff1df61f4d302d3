// Copying into memory that another core reads next.
#pragma once

#include <cstddef>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace heddle {

// Copies what is handed over in the way that makes it cheapest to read on the other side.
class Handover {
 public:
  Handover() : demotes_(processor_demotes()) {}

  // Copies n bytes to `to`, the start of a cache line or in a line with what the reader polls. What is stored before
  // a release store of the caller's is visible before it.
  void operator()(std::byte* to, const std::byte* from, std::size_t n) const {
    if (n >= kStreams) {
      stream(to, from, n);
    } else if (demotes_ && n >= kDemotes) {
      demote(to, from, n);
    } else if (n > 0) {
      std::memcpy(to, from, n);
    }
  }

 private:
  static constexpr std::size_t kLine = 64;
  // From here on lines are asked into the shared cache as soon as they are full, where the reader's request ends
  // sooner than in this core's (measured on Sapphire Rapids, allreduce by two: 512 bytes in 0.29 us instead of 0.36).
  static constexpr std::size_t kDemotes = kLine;
  // From here on it is cheaper still to write past this core's cache (8 KiB in 1.7 us instead of 2.0, and of 2.2 with
  // plain stores).
  static constexpr std::size_t kStreams = 4096;

#if defined(__x86_64__)
  static bool processor_demotes() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    constexpr unsigned kCldemote = 1U << 25;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (c & kCldemote) != 0;
  }

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
  static bool processor_demotes() {
    return false;
  }
  static void demote(std::byte* to, const std::byte* from, std::size_t n) {
    std::memcpy(to, from, n);
  }
  static void stream(std::byte* to, const std::byte* from, std::size_t n) {
    std::memcpy(to, from, n);
  }
#endif

  bool demotes_;
};

// Asks for lines that will be written, while there is nothing else to do.
inline void prefetch_to_write(const std::byte* at, std::size_t n) {
  for (std::size_t i = 0; i < n; i += 64)
    __builtin_prefetch(at + i, 1);
}

}  // namespace heddle
