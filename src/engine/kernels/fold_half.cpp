// Kernels on f16 (IEEE binary16) and bf16. Both are widened to f32, folded there over all inputs, and rounded
// once, at the store.
#include "engine/kernels/families.hpp"
#include "engine/kernels/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/fold_half.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/float_folds_inl.hpp"
#include "engine/kernels/half_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::HWY_NAMESPACE {

FoldFn half_fold(DType type, Op op, Stores stores) {
  switch (type) {
    case DType::f16:
      return float_folds<Half>(op, stores);
    case DType::bf16:
      return float_folds<BrainFloat>(op, stores);
    default:
      return nullptr;
  }
}

}  // namespace heddle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::kernels {

HWY_EXPORT(half_fold);
FoldFn fold_half(DType type, Op op, Stores stores) {
  return HWY_DYNAMIC_DISPATCH(half_fold)(type, op, stores);
}

}  // namespace heddle::kernels
#endif
