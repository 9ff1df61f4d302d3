// Elements as they are stored and as they are computed with. Each has:
//   Stored   as it lies in memory; its alignment is what the device needs for one load
//   Value    what folds compute with
//   decode, encode   from one to the other; a fold of many inputs encodes once, at the end
// The bits are those of the host's folds (src/engine/kernels).
#pragma once

#include <cmath>
#include <cstdint>

#include "gpu/kernels/portable.hpp"

namespace heddle::gpu::kernels {

template <typename T>
struct Plain {
  using Stored = T;
  using Value = T;
  HEDDLE_HOST_DEVICE static Value decode(Stored stored) { return stored; }
  HEDDLE_HOST_DEVICE static Stored encode(Value value) { return value; }
};

template <typename T>
struct Complex {
  struct Stored {
    T re;
    T im;
  };
  using Value = Stored;
  HEDDLE_HOST_DEVICE static Value decode(Stored stored) { return stored; }
  HEDDLE_HOST_DEVICE static Stored encode(Value value) { return value; }
};

// A NaN is stored quiet, with the upper bits of its payload.
struct BrainFloat {
  using Stored = std::uint16_t;
  using Value = float;
  HEDDLE_HOST_DEVICE static Value decode(Stored stored) {
    return bits_as<float>(std::uint32_t{stored} << 16);
  }
  HEDDLE_HOST_DEVICE static Stored encode(Value value) {
    const auto bits = bits_as<std::uint32_t>(value);
    // Just under half a unit, and the missing bit where that makes a tie go to even; a carry into the
    // exponent is right, up to infinity.
    const std::uint32_t rounded = bits + 0x7FFFU + (bits >> 16 & 1U);
    return static_cast<Stored>((is_nan(value) ? bits | 0x00400000U : rounded) >> 16);
  }
};

// IEEE binary16. GPUs have instructions for it, which say nothing of a NaN's payload; the host's twin does
// without.
struct Half {
  using Stored = std::uint16_t;
  using Value = float;

  HEDDLE_HOST_DEVICE static Value decode(Stored stored) {
    const Value value = widen(stored);
    if (!is_nan(value)) return value;
    return bits_as<float>((stored & 0x8000U) << 16 | 0x7F800000U | (stored & 0x03FFU) << 13);
  }
  HEDDLE_HOST_DEVICE static Stored encode(Value value) {
    if (!is_nan(value)) return narrow(value);
    const auto bits = bits_as<std::uint32_t>(value);
    return static_cast<Stored>((bits >> 16 & 0x8000U) | 0x7E00U | (bits >> 13 & 0x03FFU));
  }

  // As GPUs do it: to the nearest; narrow_down() towards zero, where what is too large becomes the largest
  // number, and infinities stay.
#ifdef __CUDA_ARCH__
  __device__ static float widen(Stored stored) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(stored));
    return value;
  }
  __device__ static Stored narrow(float value) {
    Stored stored;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(stored) : "f"(value));
    return stored;
  }
  __device__ static Stored narrow_down(float value) {
    Stored stored;
    asm("cvt.rz.f16.f32 %0, %1;" : "=h"(stored) : "f"(value));
    return stored;
  }
#else
  static float widen(Stored stored) {
    const std::uint32_t shifted = (stored & 0x7FFFU) << 13;
    // The exponent is short by the difference of the biases, 112; the product is exact for subnormals too.
    const auto magnitude = bits_as<std::uint32_t>(bits_as<float>(shifted) * 0x1p112F);
    const bool is_finite = (stored & 0x7C00U) != 0x7C00U;
    return bits_as<float>((is_finite ? magnitude : shifted | 0x7F800000U) | (stored & 0x8000U) << 16);
  }
  static Stored narrow(float value) {
    const auto bits = bits_as<std::uint32_t>(value);
    const std::uint32_t sign = bits >> 16 & 0x8000U;
    const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
    // From halfway between the largest half and the next power of two on.
    if (magnitude >= 0x477FF000U) return static_cast<Stored>(sign | 0x7C00U);
    if (magnitude >= 0x38800000U) {  // 2^-14, the smallest normal number
      const std::uint32_t rounded = magnitude - 0x38000000U + 0x0FFFU + (magnitude >> 13 & 1U);
      return static_cast<Stored>(sign | rounded >> 13);
    }
    // One unit in the last place of 0.5 is the spacing of subnormal halves: the addition rounds to it.
    const float sum = bits_as<float>(magnitude) + 0.5F;
    return static_cast<Stored>(sign | (bits_as<std::uint32_t>(sum) - bits_as<std::uint32_t>(0.5F)));
  }
  static Stored narrow_down(float value) {
    const Stored nearest = narrow(value);
    // The code before is that of the next smaller magnitude, and infinity follows the largest number.
    return std::fabs(widen(nearest)) > std::fabs(value) ? static_cast<Stored>(nearest - 1) : nearest;
  }
#endif
};

// The code of a finite magnitude: that has f32's bits, this kMantissa bits of mantissa. kLeast is the
// exponent of the smallest normal number and kLargest the largest number, both as f32 has them: what is
// larger becomes that. GPUs from sm_89 on have instructions for it. But those make infinities finite, and
// older GPUs, and the PTX that all machine code comes from, do without.
template <unsigned kMantissa, std::uint32_t kLeast, std::uint32_t kLargest>
HEDDLE_HOST_DEVICE std::uint32_t round_magnitude(std::uint32_t magnitude) {
  constexpr std::uint32_t kDropped = 23 - kMantissa;
  constexpr std::uint32_t kSmallestNormal = kLeast << 23;
  const std::uint32_t clipped = magnitude < kLargest ? magnitude : kLargest;
  const std::uint32_t own = clipped & 0x7F800000U;
  // Subnormal numbers are as far apart as the smallest normal ones.
  const std::uint32_t exponent = own > kSmallestNormal ? own : kSmallestNormal;
  // One unit in the last place of this is one of the code, so that the addition rounds to it. The sum's
  // mantissa counts units, with the leading bit of normal numbers, and its exponent is the number's but for a
  // constant: together, with what makes up for that, they are the code.
  constexpr std::uint32_t kMissing = (0 - ((kLeast + kDropped) << kMantissa)) % 256;
  const auto large = bits_as<float>(exponent + (kDropped << 23) + kMissing);
  const auto sum = bits_as<std::uint32_t>(bits_as<float>(clipped) + large);
  return (sum + (sum >> kDropped)) & 0xFFU;
}

// A number with f32's bits but for its exponent, which is short by the difference of the biases: the product
// makes up for that, and is exact for subnormals too. What comes out larger than the largest number is
// infinite or NaN.
HEDDLE_HOST_DEVICE inline float widen(std::uint32_t bits, float scale, float largest) {
  const float value = bits_as<float>(bits) * scale;
  return std::fabs(value) > largest ? bits_as<float>(bits | 0x7F800000U) : value;
}

// OCP's 8 bits with 4 of exponent, of which the largest has numbers too, and but one NaN.
struct E4M3 {
  using Stored = std::uint8_t;
  using Value = float;
  HEDDLE_HOST_DEVICE static Value decode(Stored stored) {
    return widen((stored & 0x80U) << 24 | (stored & 0x7FU) << 20, 0x1p120F, 448.0F);
  }
  HEDDLE_HOST_DEVICE static Stored encode(Value value) {
    const auto bits = bits_as<std::uint32_t>(value);
    const std::uint32_t code = round_magnitude<3, 121, 0x43E00000U>(bits & 0x7FFFFFFFU);
    return static_cast<Stored>((bits >> 24 & 0x80U) | (is_nan(value) ? 0x7FU : code));
  }
};

// OCP's 8 bits with 5 of exponent: the upper byte of a half.
struct E5M2 {
  using Stored = std::uint8_t;
  using Value = float;
  HEDDLE_HOST_DEVICE static Value decode(Stored stored) {
    return widen((stored & 0x80U) << 24 | (stored & 0x7FU) << 21, 0x1p112F, 57344.0F);
  }
  HEDDLE_HOST_DEVICE static Stored encode(Value value) {
    const auto bits = bits_as<std::uint32_t>(value);
    const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
    std::uint32_t code = round_magnitude<2, 113, 0x47600000U>(magnitude);
    // Infinities and NaN are f32's upper bits; NaN is made quiet.
    if (magnitude >= 0x7F800000U) code = magnitude >> 21 & 0x7FU;
    if (is_nan(value)) code |= 0x02U;
    return static_cast<Stored>((bits >> 24 & 0x80U) | code);
  }
};

}  // namespace heddle::gpu::kernels
