// Elements of 8 and 16 bits by whole words, several at once, as long as they are numbers. For each element
// that has it:
//   decode   what the elements of a word are, the first one lowest
//   encode   the word of such values; without kRounds they are elements, which need no rounding
// Where `is_odd` gets set there may be a NaN or an infinity, and what comes out means nothing. Where it does
// not, the bits are those of the element's own decode and encode (elements.hpp), which look after NaN's
// payload. Of a NaN decode makes some NaN, or sets `is_odd`.
#pragma once

#include <cmath>
#include <cstdint>

#include "gpu/kernels/elements.hpp"
#include "gpu/kernels/portable.hpp"

namespace heddle::gpu::kernels {

// Both are looked at: `||` would be a branch, and two assignments take more instructions.
HEDDLE_HOST_DEVICE inline bool either(bool one, bool other) {
  return (int{one} | int{other}) != 0;
}

template <class Element>
struct Words {
  static constexpr bool kAny = false;
};

template <>
struct Words<Half> {
  static constexpr bool kAny = true;
  HEDDLE_HOST_DEVICE static void decode(std::uint32_t word, float* values, bool& /*is_odd*/) {
    values[0] = Half::widen(static_cast<std::uint16_t>(word));
    values[1] = Half::widen(static_cast<std::uint16_t>(word >> 16));
  }
  template <bool kRounds>
  HEDDLE_HOST_DEVICE static std::uint32_t encode(const float* values, bool& is_odd) {
    is_odd |= either(is_nan(values[0]), is_nan(values[1]));
    return Half::narrow(values[0]) | std::uint32_t{Half::narrow(values[1])} << 16;
  }
};

// A magnitude rounded to kMantissa bits of mantissa, and to no more than a number with the exponent kLeast
// has, which is as f32 has it. Of an infinity it makes NaN, as of what is not far from it.
template <unsigned kMantissa, std::uint32_t kLeast>
HEDDLE_HOST_DEVICE float rounded(float magnitude) {
  constexpr auto kShift = static_cast<float>(1U << (23 - kMantissa));
  const std::uint32_t own = bits_as<std::uint32_t>(magnitude) & 0x7F800000U;
  // One unit in the last place of this is one of what the magnitude is rounded to: so the addition rounds it.
  const float large = bits_as<float>(own > kLeast << 23 ? own : kLeast << 23) * kShift;
  return magnitude + large - large;
}

// The codes of four magnitudes, with the signs of the values.
HEDDLE_HOST_DEVICE inline std::uint32_t with_signs(std::uint32_t codes, const float* values) {
  std::uint32_t bits[4];
  for (unsigned i = 0; i < 4; ++i)
    bits[i] = bits_as<std::uint32_t>(values[i]);
  const std::uint32_t upper =
      permuted(permuted(bits[0], bits[1], 0x0073U), permuted(bits[2], bits[3], 0x0073U), 0x5410U);
  return codes | (upper & 0x80808080U);
}

template <>
struct Words<E4M3> {
  static constexpr bool kAny = true;
  HEDDLE_HOST_DEVICE static void decode(std::uint32_t word, float* values, bool& is_odd) {
    // A carry into the sign's place.
    is_odd |= (((word & 0x7F7F7F7FU) + 0x01010101U) & 0x80808080U) != 0;
    decode_pair(word << 8, values[0], values[2]);
    decode_pair(word, values[1], values[3]);
  }
  template <bool kRounds>
  HEDDLE_HOST_DEVICE static std::uint32_t encode(const float* values, bool& is_odd) {
    is_odd |= either(is_nan(values[0]), is_nan(values[1]));
    is_odd |= either(is_nan(values[2]), is_nan(values[3]));
    const std::uint32_t even = encode_pair<kRounds>(values[0], values[2]);
    const std::uint32_t odd = encode_pair<kRounds>(values[1], values[3]);
    return with_signs(permuted(even, odd, 0x7351U), values);
  }

 private:
  // The upper bytes of two halves. A half has one bit of exponent more, and a bias that is greater by 8.
  HEDDLE_HOST_DEVICE static void decode_pair(std::uint32_t pair, float& low, float& high) {
    const std::uint32_t halves = scaled((pair >> 1 & 0x3F803F80U) | (pair & 0x80008000U), 0x5C00U);  // 2^8
    low = Half::widen(static_cast<std::uint16_t>(halves));
    high = Half::widen(static_cast<std::uint16_t>(halves >> 16));
  }
  template <bool kRounds>
  HEDDLE_HOST_DEVICE static std::uint32_t encode_pair(float low, float high) {
    const std::uint32_t halves =
        Half::narrow(magnitude<kRounds>(low)) | std::uint32_t{Half::narrow(magnitude<kRounds>(high))} << 16;
    return scaled(halves, 0x1C00U) << 1;  // 2^-8
  }
  template <bool kRounds>
  HEDDLE_HOST_DEVICE static float magnitude(float value) {
    const float own = std::fabs(value);
    return kRounds ? rounded<3, 121>(std::fmin(own, 448.0F)) : own;
  }
  // Two halves times a power of two, without a rounding.
  HEDDLE_HOST_DEVICE static std::uint32_t scaled(std::uint32_t halves, std::uint16_t by) {
#ifdef __CUDA_ARCH__
    std::uint32_t product;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(halves), "r"(by * 0x00010001U));
    return product;
#else
    const float factor = Half::widen(by);
    return Half::narrow(Half::widen(static_cast<std::uint16_t>(halves)) * factor) |
           std::uint32_t{Half::narrow(Half::widen(static_cast<std::uint16_t>(halves >> 16)) * factor)} << 16;
#endif
  }
};

template <>
struct Words<E5M2> {
  static constexpr bool kAny = true;
  // The upper bytes of halves.
  HEDDLE_HOST_DEVICE static void decode(std::uint32_t word, float* values, bool& /*is_odd*/) {
    const std::uint32_t even = permuted(word, 0, 0x2404U);
    const std::uint32_t odd = word & 0xFF00FF00U;
    values[0] = Half::widen(static_cast<std::uint16_t>(even));
    values[1] = Half::widen(static_cast<std::uint16_t>(odd));
    values[2] = Half::widen(static_cast<std::uint16_t>(even >> 16));
    values[3] = Half::widen(static_cast<std::uint16_t>(odd >> 16));
  }
  template <bool kRounds>
  HEDDLE_HOST_DEVICE static std::uint32_t encode(const float* values, bool& is_odd) {
    std::uint32_t halves[4];
    for (unsigned i = 0; i < 4; i += 2) {
      const float low = magnitude<kRounds>(values[i]);
      const float high = magnitude<kRounds>(values[i + 1]);
      is_odd |= either(is_nan(low), is_nan(high));
      // What is too large becomes the largest half, whose upper byte is the largest number's.
      halves[i] = Half::narrow_down(low);
      halves[i + 1] = Half::narrow_down(high);
    }
    return with_signs(permuted(halves[0] | halves[2] << 16, halves[1] | halves[3] << 16, 0x7351U), values);
  }

 private:
  template <bool kRounds>
  HEDDLE_HOST_DEVICE static float magnitude(float value) {
    return kRounds ? rounded<2, 113>(std::fabs(value)) : std::fabs(value);
  }
};

}  // namespace heddle::gpu::kernels
