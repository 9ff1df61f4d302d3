// Logical and bitwise operations on integers. Neither depends on the sign; the bitwise ones do not depend on
// the width either and are computed on bytes.
#include "engine/kernels/families.hpp"
#include "engine/kernels/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/fold_bits.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/fold_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::HWY_NAMESPACE {

struct BitAnd {
  template <class D, class V>
  static HWY_INLINE V apply(D, V a, V b) {
    return hn::And(a, b);
  }
};

struct BitOr {
  template <class D, class V>
  static HWY_INLINE V apply(D, V a, V b) {
    return hn::Or(a, b);
  }
};

struct BitXor {
  template <class D, class V>
  static HWY_INLINE V apply(D, V a, V b) {
    return hn::Xor(a, b);
  }
};

// Lanes are unsigned, so min(x, 1) is the truth value of x as 0 or 1.
template <class D, class V>
HWY_INLINE V truth(D d, V x) {
  return hn::Min(x, hn::Set(d, hn::TFromD<D>{1}));
}

struct LogicalAnd {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V a, V b) {
    return truth(d, hn::Min(a, b));
  }
};

struct LogicalOr {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V a, V b) {
    return truth(d, hn::Or(a, b));
  }
};

struct LogicalXor {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V a, V b) {
    return hn::Xor(truth(d, a), truth(d, b));
  }
};

template <typename Unsigned>
FoldFn sized_fold(Op op) {
  switch (op) {
    case Op::land:
      return &fold<Plain<Unsigned>, LogicalAnd>;
    case Op::lor:
      return &fold<Plain<Unsigned>, LogicalOr>;
    case Op::lxor:
      return &fold<Plain<Unsigned>, LogicalXor>;
    case Op::band:
      return &fold_parts<Plain<std::uint8_t>, BitAnd, sizeof(Unsigned)>;
    case Op::bor:
      return &fold_parts<Plain<std::uint8_t>, BitOr, sizeof(Unsigned)>;
    case Op::bxor:
      return &fold_parts<Plain<std::uint8_t>, BitXor, sizeof(Unsigned)>;
    default:
      return nullptr;
  }
}

FoldFn bits_fold(DType type, Op op) {
  switch (type) {
    case DType::i8:
    case DType::u8:
      return sized_fold<std::uint8_t>(op);
    case DType::i16:
    case DType::u16:
      return sized_fold<std::uint16_t>(op);
    case DType::i32:
    case DType::u32:
      return sized_fold<std::uint32_t>(op);
    case DType::i64:
    case DType::u64:
      return sized_fold<std::uint64_t>(op);
    default:
      return nullptr;
  }
}

}  // namespace heddle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::kernels {

HWY_EXPORT(bits_fold);
FoldFn fold_bits(DType type, Op op) {
  return HWY_DYNAMIC_DISPATCH(bits_fold)(type, op);
}

}  // namespace heddle::kernels
#endif
