// Divisions of many numbers by one: two products and a sum each, in place of the dozen instructions and the
// branch of a division, with the same bits.
#pragma once

#include <cmath>
#include <cstdint>

#include "gpu/kernels/block.hpp"

namespace heddle::gpu::kernels {

// a b + c, rounded once.
HEDDLE_DEVICE inline float fused(float a, float b, float c) {
#ifdef __CUDA_ARCH__
  return __fmaf_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}

// From 2^-64 to 2^64: what follows needs a scale whose inverse is a normal number, and remainders that no
// subnormal number rounds.
HEDDLE_DEVICE inline bool is_ordinary(std::uint32_t scale) {
  constexpr std::uint32_t kLeast = (127U - 64U) << 23;
  constexpr std::uint32_t kMost = (127U + 64U) << 23;
  return scale - kLeast <= kMost - kLeast;
}

// magnitude / scale, rounded, of a magnitude from scale / 2^32 up to the scale; where it is less, something
// less than 2^-31. `inverse` is 1 / scale.
//
// The first product misses the quotient by less than two of its last places. What is left over of the
// magnitude, and so what the quotient lacks, comes with errors of 2^-24 of itself: before it is rounded the
// sum misses the quotient by less than 2^-22 of a last place. So it is rounded as the quotient, unless that
// lies as close to the middle between two numbers. There are 46 million pairs of 24-bit numbers whose
// quotients do, and with all of them the result is right: tests/gpu/quotient_test.cpp goes through them.
HEDDLE_DEVICE inline float quotient(float magnitude, float scale, float inverse) {
  const float near = magnitude * inverse;
  return fused(fused(-near, scale, magnitude), inverse, near);
}

}  // namespace heddle::gpu::kernels
