// Kernels on the floats of 8 bits, e4m3 and e5m2. Both are widened to f32, folded there over all inputs, and
// rounded once, at the store.
#include "engine/kernels/families.hpp"
#include "engine/kernels/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/fold_fp8.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/float_folds_inl.hpp"
#include "engine/kernels/fp8_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::HWY_NAMESPACE {

FoldFn fp8_fold(DType type, Op op, Stores stores) {
  switch (type) {
    case DType::e4m3:
      return float_folds<E4M3>(op, stores);
    case DType::e5m2:
      return float_folds<E5M2>(op, stores);
    default:
      return nullptr;
  }
}

}  // namespace heddle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::kernels {

HWY_EXPORT(fp8_fold);
FoldFn fold_fp8(DType type, Op op, Stores stores) {
  return HWY_DYNAMIC_DISPATCH(fp8_fold)(type, op, stores);
}

}  // namespace heddle::kernels
#endif
