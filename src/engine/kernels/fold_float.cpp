// Kernels on f32 and f64, and sums of their complex types, which are sums of their parts.
#include "engine/kernels/families.hpp"
#include "engine/kernels/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/fold_float.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/float_folds_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::HWY_NAMESPACE {

FoldFn float_fold(DType type, Op op, Stores stores) {
  switch (type) {
    case DType::f32:
      return float_folds<Plain<float>>(op, stores);
    case DType::f64:
      return float_folds<Plain<double>>(op, stores);
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
