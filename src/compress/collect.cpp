// One pass over a vector for what is not below a threshold.
#include "engine/kernels/targets.hpp"

#include <bit>

#include "compress/kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/collect.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "compress/mask_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace heddle::compress::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t kWord = 64;

// The entries whose bits are set, of those that start at `first`.
template <class Index>
HWY_INLINE std::size_t append(std::uint64_t word, const float* values, std::size_t first, Index* indices,
                              float* out, std::size_t taken) {
  for (; word != 0; word &= word - 1) {
    const std::size_t i = first + static_cast<std::size_t>(std::countr_zero(word));
    indices[taken] = static_cast<Index>(i);
    out[taken++] = values[i];
  }
  return taken;
}

template <class Index>
HWY_INLINE Collected collect_above(const float* values, std::size_t begin, std::size_t end,
                                   std::uint32_t threshold, Index* indices, float* out, std::size_t room) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const auto mask = hn::Set(di, static_cast<std::int32_t>(kMagnitudeBits));
  const auto below = hn::Set(di, static_cast<std::int32_t>(threshold - 1));
  std::size_t taken = 0;
  std::size_t i = begin;
  for (; i + kWord <= end && taken + kWord <= room; i += kWord) {
    const std::uint64_t word = word_of_masks(di, [=](std::size_t k) {
      return hn::Gt(hn::And(hn::BitCast(di, hn::LoadU(d, values + i + k)), mask), below);
    });
    taken = append(word, values, i, indices, out, taken);
  }
  if (taken + kWord > room || i == end) return {taken, i};
  std::uint64_t word = 0;
  for (std::size_t k = i; k < end; ++k) {
    const bool is_above = (std::bit_cast<std::uint32_t>(values[k]) & kMagnitudeBits) >= threshold;
    word |= static_cast<std::uint64_t>(is_above) << (k - i);
  }
  return {append(word, values, i, indices, out, taken), end};
}

Collected collect_narrow(const float* values, std::size_t begin, std::size_t end, std::uint32_t threshold,
                         std::uint32_t* indices, float* out, std::size_t room) {
  return collect_above(values, begin, end, threshold, indices, out, room);
}
Collected collect_wide(const float* values, std::size_t begin, std::size_t end, std::uint32_t threshold,
                       std::uint64_t* indices, float* out, std::size_t room) {
  return collect_above(values, begin, end, threshold, indices, out, room);
}

}  // namespace heddle::compress::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::compress {

HWY_EXPORT(collect_narrow);
HWY_EXPORT(collect_wide);

Collected collect(const float* values, std::size_t begin, std::size_t end, std::uint32_t threshold,
                  std::uint32_t* indices, float* out, std::size_t room) {
  return HWY_DYNAMIC_DISPATCH(collect_narrow)(values, begin, end, threshold, indices, out, room);
}
Collected collect(const float* values, std::size_t begin, std::size_t end, std::uint32_t threshold,
                  std::uint64_t* indices, float* out, std::size_t room) {
  return HWY_DYNAMIC_DISPATCH(collect_wide)(values, begin, end, threshold, indices, out, room);
}

}  // namespace heddle::compress
#endif
