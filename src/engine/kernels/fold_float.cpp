// Kernels on f32 and f64, and sums of their complex types, which are sums of their parts.
#include "engine/kernels/families.hpp"
#include "engine/kernels/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/fold_float.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/float_ops_inl.hpp"
#include "engine/kernels/fold_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::HWY_NAMESPACE {

template <typename T>
FoldFn real_fold(Op op, Stores stores) {
  switch (op) {
    case Op::sum:
      return stores == Stores::streaming ? &fold_streaming<Plain<T>, FloatSum> : &fold<Plain<T>, FloatSum>;
    case Op::prod:
      return &fold<Plain<T>, FloatProd>;
    case Op::min:
      return &fold<Plain<T>, FloatMin>;
    case Op::max:
      return &fold<Plain<T>, FloatMax>;
    default:
      return nullptr;
  }
}

FoldFn float_fold(DType type, Op op, Stores stores) {
  switch (type) {
    case DType::f32:
      return real_fold<float>(op, stores);
    case DType::f64:
      return real_fold<double>(op, stores);
    case DType::c32:
      return op == Op::sum ? &fold_parts<Plain<float>, FloatSum, 2> : nullptr;
    case DType::c64:
      return op == Op::sum ? &fold_parts<Plain<double>, FloatSum, 2> : nullptr;
    default:
      return nullptr;
  }
}

}  // namespace heddle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::kernels {

HWY_EXPORT(float_fold);
FoldFn fold_float(DType type, Op op, Stores stores) {
  return HWY_DYNAMIC_DISPATCH(float_fold)(type, op, stores);
}

}  // namespace heddle::kernels
#endif
