// The loops under the codecs and selections, chosen for the processor at run time by Highway. Results are the
// same bits for every instruction set. Values are aligned as floats are; bytes need no alignment.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compress/random.hpp"

namespace heddle::compress {

inline constexpr std::uint32_t kMagnitudeBits = 0x7FFFFFFFU;
inline constexpr std::uint32_t kInfinityBits = 0x7F800000U;

// ---- f16 and bf16 (half.cpp)

void to_f16(const float* values, std::size_t n, std::uint8_t* out);
void to_bf16(const float* values, std::size_t n, std::uint8_t* out);
void from_f16(const std::uint8_t* in, std::size_t n, float* values);
void from_bf16(const std::uint8_t* in, std::size_t n, float* values);

// ---- Quantised values (quantise.cpp)

// The bits of the largest magnitude; above those of infinity where there is a NaN. 0 for n = 0.
std::uint32_t largest_magnitude(const float* values, std::size_t n);

// Codes 0 to 2 levels, where `levels` stands for zero. `scale` is finite, above 0, and no magnitude is above
// it. `position` is the lower half of the first value's; it may run over.
void quantise(const float* values, std::size_t n, float scale, std::uint32_t levels, RandomKey key,
              std::uint32_t position, std::uint8_t* codes);
// Returns the largest code.
std::uint32_t dequantise(const std::uint8_t* codes, std::size_t n, float scale, std::uint32_t levels,
                         float* values);

// n codes, one a byte, to `bits` bits each and back, the first in the lowest bits; 1, 2 or 4 bits. What is
// left of the last byte is 0.
void pack(const std::uint8_t* codes, std::size_t n, unsigned bits, std::uint8_t* out);
void unpack(const std::uint8_t* in, std::size_t n, unsigned bits, std::uint8_t* codes);

// Sums of the values from 0 up and of the magnitudes of the negative ones, in an order that is the same
// everywhere, and a bit for each value that is set where it is negative.
struct SignSums {
  double positive = 0;
  double negative = 0;
  std::size_t negatives = 0;
};
SignSums split_signs(const float* values, std::size_t n, std::uint8_t* bits);
void join_signs(const std::uint8_t* bits, std::size_t n, float positive, float negative, float* values);

// ---- SelectedEntries (collect.cpp)

// Indices and values from values[begin] on whose magnitude, as bits, is at least `threshold` (1 to 2^31), in
// order. Stops at the end or where fewer than 64 places are left in `room`, and says where.
struct Collected {
  std::size_t taken = 0;
  std::size_t next = 0;
};
Collected collect(const float* values, std::size_t begin, std::size_t end, std::uint32_t threshold,
                  std::uint32_t* indices, float* out, std::size_t room);
Collected collect(const float* values, std::size_t begin, std::size_t end, std::uint32_t threshold,
                  std::uint64_t* indices, float* out, std::size_t room);

}  // namespace heddle::compress
