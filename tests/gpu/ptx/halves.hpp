// Numbers of 16 bits with five for the exponent (IEEE 754 binary16), as GPUs convert them.
#pragma once

#include <cmath>
#include <cstdint>

namespace heddle::test::ptx {

inline float float_of_half(std::uint16_t half) {
  const int exponent = half >> 10 & 0x1F;
  const int fraction = half & 0x3FF;
  float magnitude = 0;
  if (exponent == 0x1F)
    magnitude = fraction == 0 ? INFINITY : NAN;
  else if (exponent == 0)
    magnitude = std::ldexp(static_cast<float>(fraction), -24);
  else
    magnitude = std::ldexp(static_cast<float>(fraction + 0x400), exponent - 25);
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

// To the nearest, ties to even.
inline std::uint16_t half_of_float(float value) {
  if (std::isnan(value)) return 0x7FFF;
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const float magnitude = std::fabs(value);
  if (magnitude >= 65520.0F) return sign | 0x7C00;
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  // The lowest bit's weight: 2^(exponent - 11), and never less than a subnormal's.
  const int lowest = exponent - 11 < -24 ? -24 : exponent - 11;
  // Exact, but for the rounding to whole numbers in the end.
  const float rounded = std::nearbyint(std::ldexp(magnitude, -lowest));
  const float result = std::ldexp(rounded, lowest);
  if (result >= 65536.0F) return sign | 0x7C00;
  if (result < std::ldexp(1.0F, -14)) return sign | static_cast<std::uint16_t>(std::ldexp(result, 24));
  std::frexp(result, &exponent);
  const auto fraction = static_cast<std::uint16_t>(std::ldexp(result, 11 - exponent));  // 1024 to 2047
  return static_cast<std::uint16_t>(sign | (exponent + 14) << 10 | (fraction & 0x3FF));
}

// Towards zero: what is too large becomes the largest number, and an infinity stays.
inline std::uint16_t half_towards_zero(float value) {
  const std::uint16_t nearest = half_of_float(value);
  const bool is_beyond = std::fabs(float_of_half(nearest)) > std::fabs(value);
  return static_cast<std::uint16_t>(is_beyond ? nearest - 1 : nearest);
}

}  // namespace heddle::test::ptx
