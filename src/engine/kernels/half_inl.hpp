// f16 (IEEE binary16) and bf16 as elements of the kernels' loops: widened to f32 at the load, rounded to
// nearest even at the store. A NaN is stored quiet, with the upper bits of its payload. Every instruction set
// gives the same bits. Re-included per instruction set.
#if defined(HEDDLE_KERNELS_HALF_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_HALF_INL
#undef HEDDLE_KERNELS_HALF_INL
#else
#define HEDDLE_KERNELS_HALF_INL
#endif

#include "engine/kernels/fold_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class D>
using Bits = hn::RebindToUnsigned<D>;  // u32 lanes for the f32 lanes of D
template <class D>
using Shorts = hn::Rebind<std::uint16_t, D>;  // u16 lanes, as many

template <class D>
HWY_INLINE hn::Vec<Bits<D>> set_bits(D, std::uint32_t value) {
  return hn::Set(Bits<D>(), value);
}

// The last bit that stays after dropping `kDropped`, for rounding to even.
template <int kDropped, class D>
HWY_INLINE hn::Vec<Bits<D>> last_kept_bit(D d, hn::Vec<Bits<D>> bits) {
  return hn::And(hn::ShiftRight<kDropped>(bits), set_bits(d, 1));
}

struct BrainFloat {
  using Lane = float;
  static constexpr std::size_t kBytes = 2;
  template <class D>
  using Stored = Shorts<D>;

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const std::uint8_t* from) {
    const auto wide = hn::PromoteTo(Bits<D>(), load_lanes(Shorts<D>(), from));
    return hn::BitCast(d, hn::ShiftLeft<16>(wide));
  }

  template <class D>
  static HWY_INLINE hn::Vec<Shorts<D>> encode(D d, hn::Vec<D> v) {
    const Bits<D> du;
    const auto bits = hn::BitCast(du, v);
    // Add just under half a unit, and the missing bit where that makes a tie go to even; a carry into the
    // exponent is the right answer, up to infinity.
    const auto rounded = hn::Add(bits, hn::Add(set_bits(d, 0x7FFF), last_kept_bit<16>(d, bits)));
    const auto quiet = hn::Or(bits, set_bits(d, 0x00400000));
    const auto result = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), quiet, rounded);
    return hn::TruncateTo(Shorts<D>(), hn::ShiftRight<16>(result));
  }
};

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)

struct Half {
  using Lane = float;
  static constexpr std::size_t kBytes = 2;
  template <class D>
  using Stored = Shorts<D>;

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const std::uint8_t* from) {
    return decode(d, load_lanes(Shorts<D>(), from));
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> decode(D d, hn::Vec<Shorts<D>> stored) {
    const hn::Rebind<hwy::float16_t, D> d16;
    return hn::PromoteTo(d, hn::BitCast(d16, stored));
  }

  template <class D>
  static HWY_INLINE hn::Vec<Shorts<D>> encode(D, hn::Vec<D> v) {
    const hn::Rebind<hwy::float16_t, D> d16;
    return hn::BitCast(Shorts<D>(), hn::DemoteTo(d16, v));
  }
};

#else

// Without conversion instructions, in integers. Moving the 10-bit mantissa to f32's place leaves the exponent
// short by the difference of the biases, 112; subnormals are normalised or made by letting an f32 addition
// shift them.
struct Half {
  using Lane = float;
  static constexpr std::size_t kBytes = 2;
  template <class D>
  using Stored = Shorts<D>;
  static constexpr std::uint32_t kRebias = 112u << 23;
  static constexpr std::uint32_t kSmallestNormal = 113u << 23;  // 2^-14 as f32

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const std::uint8_t* from) {
    return decode(d, load_lanes(Shorts<D>(), from));
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> decode(D d, hn::Vec<Shorts<D>> stored) {
    const Bits<D> du;
    const auto wide = hn::PromoteTo(du, stored);
    const auto sign = hn::ShiftLeft<16>(hn::And(wide, set_bits(d, 0x8000)));
    const auto shifted = hn::ShiftLeft<13>(hn::And(wide, set_bits(d, 0x7FFF)));
    const auto exponent = hn::And(shifted, set_bits(d, 0x0F800000));
    const auto normal = hn::Add(shifted, set_bits(d, kRebias));
    const auto special = hn::Add(normal, set_bits(d, kRebias));  // infinity and NaN: exponent 31 becomes 255
    // 2^-14 + m 2^-24 is exact, and so is taking 2^-14 away again.
    const auto offset = hn::BitCast(d, set_bits(d, kSmallestNormal));
    const auto tiny =
        hn::BitCast(du, hn::Sub(hn::BitCast(d, hn::Add(shifted, set_bits(d, kSmallestNormal))), offset));
    auto bits = hn::IfThenElse(hn::Eq(exponent, set_bits(d, 0x0F800000)), special, normal);
    bits = hn::IfThenElse(hn::Eq(exponent, set_bits(d, 0)), tiny, bits);
    return hn::BitCast(d, hn::Or(bits, sign));
  }

  template <class D>
  static HWY_INLINE hn::Vec<Shorts<D>> encode(D d, hn::Vec<D> v) {
    const Bits<D> du;
    const hn::RebindToSigned<D>
        di;  // compares below are on non-negative values; signed ones are one instruction
    const auto bits = hn::BitCast(du, v);
    const auto sign = hn::And(hn::ShiftRight<16>(bits), set_bits(d, 0x8000));
    const auto abs = hn::And(bits, set_bits(d, 0x7FFFFFFF));
    const auto abs_signed = hn::BitCast(di, abs);

    const auto rounded =
        hn::Add(hn::Sub(abs, set_bits(d, kRebias)), hn::Add(set_bits(d, 0x0FFF), last_kept_bit<13>(d, abs)));
    const auto normal = hn::ShiftRight<13>(rounded);
    // One unit in the last place of 0.5f is 2^-24, the spacing of f16 subnormals: the addition rounds to it.
    const auto half = hn::Set(d, 0.5f);
    const auto tiny = hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(d, abs), half)), hn::BitCast(du, half));
    const auto payload = hn::And(hn::ShiftRight<13>(abs), set_bits(d, 0x03FF));
    const auto nan = hn::Or(payload, set_bits(d, 0x7E00));

    const auto is_tiny =
        hn::RebindMask(du, hn::Lt(abs_signed, hn::BitCast(di, set_bits(d, kSmallestNormal))));
    // From 65520 on, halfway between the largest f16 and the next power of two, the result is infinity.
    const auto overflows = hn::RebindMask(du, hn::Gt(abs_signed, hn::BitCast(di, set_bits(d, 0x477FEFFF))));
    auto result = hn::IfThenElse(is_tiny, tiny, normal);
    result = hn::IfThenElse(overflows, set_bits(d, 0x7C00), result);
    result = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), nan, result);
    return hn::TruncateTo(Shorts<D>(), hn::Or(result, sign));
  }
};

#endif

}  // namespace heddle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
