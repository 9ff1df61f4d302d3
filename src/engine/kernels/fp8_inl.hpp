// OCP's floating-point numbers of 8 bits as elements of the kernels' loops: widened to f32 at the load,
// rounded to nearest even at the store. Numbers that are too large become the largest finite one of their
// sign; infinities stay, in the format that has them, and so does NaN, quiet. Every instruction set gives the
// same bits. Re-included per instruction set.
//
// P. Micikevicius et al., "FP8 Formats for Deep Learning", arXiv:2209.05433, 2022; OCP 8-bit Floating Point
// Specification (OFP8), 2023.
#if defined(HEDDLE_KERNELS_FP8_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_FP8_INL
#undef HEDDLE_KERNELS_FP8_INL
#else
#define HEDDLE_KERNELS_FP8_INL
#endif

#include "engine/kernels/half_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class D>
using Octets = hn::Rebind<std::uint8_t, D>;  // u8 lanes, as many as D's

template <class D>
HWY_INLINE hn::Vec<Shorts<D>> set_shorts(D, std::uint16_t value) {
  return hn::Set(Shorts<D>(), value);
}

// The codes, in the lowest byte, of finite magnitudes: those have f32's bits, these kMantissa bits of
// mantissa. kLeast is the exponent of the smallest normal number and kLargest the largest number, both as f32
// has them: what is larger becomes that.
template <int kMantissa, std::uint32_t kLeast, std::uint32_t kLargest, class D>
HWY_INLINE hn::Vec<Bits<D>> round_magnitudes(D d, hn::Vec<Bits<D>> magnitudes) {
  constexpr std::uint32_t kDropped = 23 - kMantissa;
  const auto clipped = hn::Min(magnitudes, set_bits(d, kLargest));
  // Subnormal numbers are as far apart as the smallest normal ones.
  const auto exponent = hn::Max(hn::And(clipped, set_bits(d, 0x7F800000)), set_bits(d, kLeast << 23));
  // One unit in the last place of this is one of the code, so that the addition rounds to it. The sum's
  // mantissa counts units, with the leading bit of normal numbers, and its exponent is the number's but for a
  // constant: together, with what makes up for that, they are the code.
  constexpr std::uint32_t kMissing = (0 - ((kLeast + kDropped) << kMantissa)) % 256;
  const auto large = hn::BitCast(d, hn::Add(exponent, set_bits(d, (kDropped << 23) + kMissing)));
  const auto sum = hn::BitCast(Bits<D>(), hn::Add(hn::BitCast(d, clipped), large));
  return hn::Add(sum, hn::ShiftRight<kDropped>(sum));
}

template <class D>
HWY_INLINE hn::Vec<Bits<D>> magnitudes_of(D d, hn::Vec<D> v) {
  return hn::And(hn::BitCast(Bits<D>(), v), set_bits(d, 0x7FFFFFFF));
}

// The lowest byte of each code, whose upper bit is not set, and the sign.
template <class D>
HWY_INLINE hn::Vec<Octets<D>> with_signs(D d, hn::Vec<Bits<D>> codes, hn::Vec<D> v) {
  const auto signs = hn::ShiftRight<24>(hn::BitCast(Bits<D>(), v));
  return hn::TruncateTo(Octets<D>(), hn::OrAnd(codes, signs, set_bits(d, 0x80)));
}

// The largest exponent has numbers too, up to 448, and but one NaN.
struct E4M3 {
  using Lane = float;
  static constexpr std::size_t kBytes = 1;
  template <class D>
  using Stored = Octets<D>;

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const std::uint8_t* from) {
    const Shorts<D> d16;
    // As an f16, which has one bit of exponent more, and a bias that is greater by 8.
    const hn::RebindToSigned<Shorts<D>> di16;
    const auto extended = hn::PromoteTo(di16, load_lanes(hn::Rebind<std::int8_t, D>(), from));
    const auto number = hn::And(hn::BitCast(d16, hn::ShiftLeft<7>(extended)), set_shorts(d, 0xBF80));
    // NaN is the one code that a carry comes out of.
    const auto next = hn::Add(number, set_shorts(d, 0x0080));
    const auto half = hn::OrAnd(number, next, set_shorts(d, 0x4000));
    return hn::Mul(Half::decode(d, half), hn::Set(d, 256.0f));
  }

  template <class D>
  static HWY_INLINE hn::Vec<Octets<D>> encode(D d, hn::Vec<D> v) {
    const auto codes = round_magnitudes<3, 121, 0x43E00000>(d, magnitudes_of(d, v));
    const auto is_nan = hn::RebindMask(Bits<D>(), hn::IsNaN(v));
    return with_signs(d, hn::IfThenElse(is_nan, set_bits(d, 0x7F), codes), v);
  }
};

// The upper byte of an f16.
struct E5M2 {
  using Lane = float;
  static constexpr std::size_t kBytes = 1;
  template <class D>
  using Stored = Octets<D>;

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const std::uint8_t* from) {
    return Half::decode(d, hn::ShiftLeft<8>(hn::PromoteTo(Shorts<D>(), load_lanes(Octets<D>(), from))));
  }

  template <class D>
  static HWY_INLINE hn::Vec<Octets<D>> encode(D d, hn::Vec<D> v) {
    const auto magnitudes = magnitudes_of(d, v);
    const auto finite = round_magnitudes<2, 113, 0x47600000>(d, magnitudes);
    // Infinities and NaN are f32's upper bits; NaN is made quiet.
    const hn::RebindToSigned<D> di;  // magnitudes have no sign; comparing signed ones is one instruction
    const auto is_finite = hn::Lt(hn::BitCast(di, magnitudes), hn::BitCast(di, set_bits(d, 0x7F800000)));
    const auto upper = hn::And(hn::ShiftRight<21>(magnitudes), set_bits(d, 0x7F));
    const auto codes = hn::IfThenElse(hn::RebindMask(Bits<D>(), is_finite), finite, upper);
    const auto is_nan = hn::RebindMask(Bits<D>(), hn::IsNaN(v));
    return with_signs(d, hn::IfThenElse(is_nan, hn::Or(codes, set_bits(d, 0x02)), codes), v);
  }
};

}  // namespace heddle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
