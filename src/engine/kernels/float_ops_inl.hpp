// Operations on floating-point lanes, shared by f32, f64 and the floats of 8 and 16 bits. Re-included per
// instruction set.
//
// Each is one fixed expression of its operands, left to right:
//   sum, prod   IEEE 754, rounded to nearest. If both operands are NaN, the left one's payload survives.
//               A NaN made of numbers is the processor's: negative on x86, positive on Arm.
//   max(a, b)   b > a ? b : a
//   min(a, b)   b < a ? b : a
// So on a tie (+0 against -0) and when either operand is NaN, max and min give the left operand. That is what
// MPICH's MPI_MAX and MPI_MIN give for (in, inout).
#if defined(HEDDLE_KERNELS_FLOAT_OPS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_FLOAT_OPS_INL
#undef HEDDLE_KERNELS_FLOAT_OPS_INL
#else
#define HEDDLE_KERNELS_FLOAT_OPS_INL
#endif

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Addition and multiplication commute but for the payload of a NaN made from two NaNs: x86 keeps the first
// operand's. The compiler is free to swap operands and does so loop by loop, which would make the bits depend
// on the position of an element. Naming the instruction keeps the order.
// Targets before AVX2, which have higher numbers, have no instructions of three operands.
#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX2
#define HEDDLE_ORDERED(name, instruction, type)        \
  HWY_INLINE type name(type a, type b) {               \
    __asm__(instruction " %1, %0" : "+x"(a) : "x"(b)); \
    return a;                                          \
  }
#elif HWY_ARCH_X86
#define HEDDLE_ORDERED(name, instruction, type)                        \
  HWY_INLINE type name(type a, type b) {                               \
    type r;                                                            \
    __asm__("v" instruction " %2, %1, %0" : "=v"(r) : "v"(a), "v"(b)); \
    return r;                                                          \
  }
#endif

#if HWY_ARCH_X86
#if HWY_TARGET == HWY_SCALAR
HEDDLE_ORDERED(add_raw, "addss", float)
HEDDLE_ORDERED(add_raw, "addsd", double)
HEDDLE_ORDERED(mul_raw, "mulss", float)
HEDDLE_ORDERED(mul_raw, "mulsd", double)
#else
HEDDLE_ORDERED(add_raw, "addps", __m128)
HEDDLE_ORDERED(add_raw, "addpd", __m128d)
HEDDLE_ORDERED(mul_raw, "mulps", __m128)
HEDDLE_ORDERED(mul_raw, "mulpd", __m128d)
#if HWY_TARGET <= HWY_AVX2
HEDDLE_ORDERED(add_raw, "addps", __m256)
HEDDLE_ORDERED(add_raw, "addpd", __m256d)
HEDDLE_ORDERED(mul_raw, "mulps", __m256)
HEDDLE_ORDERED(mul_raw, "mulpd", __m256d)
#endif
#if HWY_TARGET <= HWY_AVX3
HEDDLE_ORDERED(add_raw, "addps", __m512)
HEDDLE_ORDERED(add_raw, "addpd", __m512d)
HEDDLE_ORDERED(mul_raw, "mulps", __m512)
HEDDLE_ORDERED(mul_raw, "mulpd", __m512d)
#endif
#endif
#undef HEDDLE_ORDERED
#endif

#if !HWY_ARCH_X86
// Nor is it the first operand's everywhere: Arm prefers a signalling NaN. So the compiler may order the
// operands of an instruction as it likes. A NaN and itself is that NaN, quiet.
template <class V>
HWY_INLINE V keep_left_nan(V left, V result) {
  return hn::IfThenElse(hn::IsNaN(left), hn::Add(left, left), result);
}
#endif

struct FloatSum {
  template <class D, class V>
  static HWY_INLINE V apply(D, V a, V b) {
#if HWY_ARCH_X86
    return V{add_raw(a.raw, b.raw)};
#else
    return keep_left_nan(a, hn::Add(a, b));
#endif
  }
};

struct FloatProd {
  template <class D, class V>
  static HWY_INLINE V apply(D, V a, V b) {
#if HWY_ARCH_X86
    return V{mul_raw(a.raw, b.raw)};
#else
    return keep_left_nan(a, hn::Mul(a, b));
#endif
  }
};

// x86's maximum and minimum instructions are the very expressions above, with the operands the other way
// round.
struct FloatMax {
  template <class D, class V>
  static HWY_INLINE V apply(D, V a, V b) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR
    return hn::Max(b, a);
#else
    return hn::IfThenElse(hn::Gt(b, a), b, a);
#endif
  }
};

struct FloatMin {
  template <class D, class V>
  static HWY_INLINE V apply(D, V a, V b) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR
    return hn::Min(b, a);
#else
    return hn::IfThenElse(hn::Lt(b, a), b, a);
#endif
  }
};

}  // namespace heddle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
