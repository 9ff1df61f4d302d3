// A comparison of 64 values at a time as one word. Re-included per instruction set.
#if defined(HEDDLE_COMPRESS_MASK_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_COMPRESS_MASK_INL
#undef HEDDLE_COMPRESS_MASK_INL
#else
#define HEDDLE_COMPRESS_MASK_INL
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace heddle::compress::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Bit i is lane i of the masks that `mask_at` gives for the offsets 0, lanes, 2 lanes, ...
template <class D, class MaskAt>
HWY_INLINE std::uint64_t word_of_masks(D d, MaskAt mask_at) {
  constexpr std::size_t kLanes = hn::MaxLanes(d);
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < 64; i += kLanes) {
    std::uint8_t bytes[8] = {};
    hn::StoreMaskBits(d, mask_at(i), bytes);
    std::uint64_t bits = 0;
    std::memcpy(&bits, bytes, sizeof bits);
    word |= bits << i;
  }
  return word;
}

}  // namespace heddle::compress::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
