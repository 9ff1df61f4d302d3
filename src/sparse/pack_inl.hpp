// Packing the chosen lanes of vectors. Re-included per instruction set.
#if defined(HEDDLE_SPARSE_PACK_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_SPARSE_PACK_INL
#undef HEDDLE_SPARSE_PACK_INL
#else
#define HEDDLE_SPARSE_PACK_INL
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Lane k is bit from + k.
template <class D>
HWY_INLINE hn::Mask<D> lanes_of(D d, std::uint64_t bits, std::size_t from) {
  std::uint8_t part[8];
  bits >>= from;
  std::memcpy(part, &bits, sizeof bits);
  return hn::LoadMaskBits(d, part);
}

// Only AVX-512 packs the chosen lanes of a vector in an instruction; elsewhere going from one to the next is
// as good.
inline constexpr bool kPacks = HWY_TARGET == HWY_AVX3;

// As 32-bit lanes: Highway's own way for 64-bit ones reads a table that GCC copies to the stack first.
template <class D>
HWY_INLINE hn::Vec<D> packed(D d, hn::Vec<D> v, hn::Mask<D> chosen) {
  const hn::Repartition<std::uint32_t, D> narrow;
  const auto halves = hn::MaskFromVec(hn::BitCast(narrow, hn::VecFromMask(d, chosen)));
  return hn::BitCast(d, hn::Compress(hn::BitCast(narrow, v), halves));
}

}  // namespace heddle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
