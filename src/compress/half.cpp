// f32 to f16 and bf16 and back. Without scalar tails: every value goes through the same vector expression.
#include "engine/kernels/targets.hpp"

#include "compress/kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/half.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/cache_control.h>

#include "engine/kernels/half_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace heddle::compress::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace hk = heddle::kernels::HWY_NAMESPACE;

// Values to ask the memory for ahead of the loop. A value is used several times while it is rounded;
// compilers load it each time, and loads that wait for the same line hold up the ones after them.
constexpr std::size_t kAhead = 512;

template <class Element>
HWY_INLINE void narrow(const float* values, std::size_t n, std::uint8_t* out) {
  const hn::ScalableTag<float> d;
  const hk::Shorts<decltype(d)> d16;
  constexpr std::size_t kLanes = hn::MaxLanes(d);
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    hwy::Prefetch(values + i + kAhead);
    hk::store_lanes(d16, Element::encode(d, hn::LoadU(d, values + i)), out + 2 * i);
  }
  if (i == n) return;
  float rest[kLanes] = {};
  std::uint8_t coded[2 * kLanes];
  std::memcpy(rest, values + i, (n - i) * sizeof(float));
  hk::store_lanes(d16, Element::encode(d, hn::LoadU(d, rest)), coded);
  std::memcpy(out + 2 * i, coded, 2 * (n - i));
}

template <class Element>
HWY_INLINE void widen(const std::uint8_t* in, std::size_t n, float* values) {
  const hn::ScalableTag<float> d;
  constexpr std::size_t kLanes = hn::MaxLanes(d);
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    hn::StoreU(Element::load(d, in + 2 * i), d, values + i);
  if (i == n) return;
  std::uint8_t coded[2 * kLanes] = {};
  float rest[kLanes];
  std::memcpy(coded, in + 2 * i, 2 * (n - i));
  hn::StoreU(Element::load(d, coded), d, rest);
  std::memcpy(values + i, rest, (n - i) * sizeof(float));
}

void narrow_f16(const float* values, std::size_t n, std::uint8_t* out) {
  narrow<hk::Half>(values, n, out);
}
void narrow_bf16(const float* values, std::size_t n, std::uint8_t* out) {
  narrow<hk::BrainFloat>(values, n, out);
}
void widen_f16(const std::uint8_t* in, std::size_t n, float* values) {
  widen<hk::Half>(in, n, values);
}
void widen_bf16(const std::uint8_t* in, std::size_t n, float* values) {
  widen<hk::BrainFloat>(in, n, values);
}

}  // namespace heddle::compress::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::compress {

HWY_EXPORT(narrow_f16);
HWY_EXPORT(narrow_bf16);
HWY_EXPORT(widen_f16);
HWY_EXPORT(widen_bf16);

void to_f16(const float* values, std::size_t n, std::uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(narrow_f16)(values, n, out);
}
void to_bf16(const float* values, std::size_t n, std::uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(narrow_bf16)(values, n, out);
}
void from_f16(const std::uint8_t* in, std::size_t n, float* values) {
  HWY_DYNAMIC_DISPATCH(widen_f16)(in, n, values);
}
void from_bf16(const std::uint8_t* in, std::size_t n, float* values) {
  HWY_DYNAMIC_DISPATCH(widen_bf16)(in, n, values);
}

}  // namespace heddle::compress
#endif
