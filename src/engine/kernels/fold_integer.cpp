// Sum, product, minimum and maximum of integers. Sums and products wrap around, which makes them the same
// operation on signed and unsigned values; they are computed unsigned.
#include <type_traits>

#include "engine/kernels/families.hpp"
#include "engine/kernels/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/fold_integer.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/fold_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::HWY_NAMESPACE {

struct IntegerSum {
  template <class D, class V>
  static HWY_INLINE V apply(D, V a, V b) {
    return hn::Add(a, b);
  }
};

struct IntegerMin {
  template <class D, class V>
  static HWY_INLINE V apply(D, V a, V b) {
    return hn::Min(a, b);
  }
};

struct IntegerMax {
  template <class D, class V>
  static HWY_INLINE V apply(D, V a, V b) {
    return hn::Max(a, b);
  }
};

struct IntegerProd {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V a, V b) {
    using T = hn::TFromD<D>;
    if constexpr (hn::MaxLanes(D()) == 1) {
      // 64 bits wide, so that a product of two 16-bit values is not promoted to a signed int, which could
      // overflow.
      const std::uint64_t product = std::uint64_t{hn::GetLane(a)} * std::uint64_t{hn::GetLane(b)};
      return hn::Set(d, static_cast<T>(product));
    } else if constexpr (sizeof(T) == 1) {
      return multiply_bytes(d, a, b);
    } else {
      return hn::Mul(a, b);
    }
  }

 private:
  // There is no byte multiply. The low byte of a 16-bit product depends on the low bytes only; and a high
  // byte times a high byte left in place comes out in the high byte with zeros below it.
  template <class D, class V>
  static HWY_INLINE V multiply_bytes(D d, V a, V b) {
    const hn::Repartition<std::uint16_t, D> d16;
    const auto a16 = hn::BitCast(d16, a);
    const auto b16 = hn::BitCast(d16, b);
    const auto low = hn::And(hn::Mul(a16, b16), hn::Set(d16, std::uint16_t{0x00FF}));
    const auto high = hn::Mul(hn::ShiftRight<8>(a16), hn::And(b16, hn::Set(d16, std::uint16_t{0xFF00})));
    return hn::BitCast(d, hn::Or(low, high));
  }
};

template <typename Integer>
FoldFn sized_fold(Op op, Stores stores) {
  using Unsigned = std::make_unsigned_t<Integer>;
  switch (op) {
    case Op::sum:
      return stores == Stores::streaming ? &fold_streaming<Plain<Unsigned>, IntegerSum>
                                         : &fold<Plain<Unsigned>, IntegerSum>;
    case Op::prod:
      return &fold<Plain<Unsigned>, IntegerProd>;
    case Op::min:
      return &fold<Plain<Integer>, IntegerMin>;
    case Op::max:
      return &fold<Plain<Integer>, IntegerMax>;
    default:
      return nullptr;
  }
}

FoldFn integer_fold(DType type, Op op, Stores stores) {
  switch (type) {
    case DType::i8:
      return sized_fold<std::int8_t>(op, stores);
    case DType::u8:
      return sized_fold<std::uint8_t>(op, stores);
    case DType::i16:
      return sized_fold<std::int16_t>(op, stores);
    case DType::u16:
      return sized_fold<std::uint16_t>(op, stores);
    case DType::i32:
      return sized_fold<std::int32_t>(op, stores);
    case DType::u32:
      return sized_fold<std::uint32_t>(op, stores);
    case DType::i64:
      return sized_fold<std::int64_t>(op, stores);
    case DType::u64:
      return sized_fold<std::uint64_t>(op, stores);
    default:
      return nullptr;
  }
}

}  // namespace heddle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::kernels {

HWY_EXPORT(integer_fold);
FoldFn fold_integer(DType type, Op op, Stores stores) {
  return HWY_DYNAMIC_DISPATCH(integer_fold)(type, op, stores);
}

}  // namespace heddle::kernels
#endif
