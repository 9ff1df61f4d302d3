// Vectors that the tests of compression share.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace heddle::test {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr std::size_t kSizes[] = {0, 1, 2, 7, 8, 9, 1023, 1024, 1025, 100000};

enum class Kind : std::uint8_t {
  uniform,    // in [-1, 1]
  gradient,   // most of them small
  any_bits,   // every finite magnitude, from subnormals to the largest
  all_equal,  // to -0.37
  extremes,   // the largest and the smallest f32, either sign, and zeros
};
inline constexpr Kind kKinds[] = {Kind::uniform, Kind::gradient, Kind::any_bits, Kind::all_equal,
                                  Kind::extremes};

inline float sample_value(Kind kind, std::mt19937_64& random) {
  const float unit = static_cast<float>(static_cast<double>(random() >> 11) * 0x1p-52 - 1);
  switch (kind) {
    case Kind::uniform:
      return unit;
    case Kind::gradient:
      return unit * unit * unit * 1e-3F;
    case Kind::any_bits: {
      auto bits = static_cast<std::uint32_t>(random());
      if ((bits & 0x7F800000U) == 0x7F800000U) bits &= 0xBFFFFFFFU;
      return std::bit_cast<float>(bits);
    }
    case Kind::all_equal:
      return -0.37F;
    case Kind::extremes: {
      constexpr float kValues[] = {0x1.FFFFFEp127F, -0x1.FFFFFEp127F, 0x1p-149F, -0x1p-149F, 0.0F,
                                   -0.0F,           0x1.FFFFFCp-127F, -0x1p-126F};
      return kValues[random() % 8];
    }
  }
  return 0;
}

inline std::vector<float> sample(Kind kind, std::size_t n, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<float> values(n);
  for (float& value : values)
    value = sample_value(kind, random);
  return values;
}

}  // namespace heddle::test
