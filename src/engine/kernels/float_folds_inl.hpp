// The kernels of elements whose lanes are floating-point numbers. Re-included per instruction set.
#if defined(HEDDLE_KERNELS_FLOAT_FOLDS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_FLOAT_FOLDS_INL
#undef HEDDLE_KERNELS_FLOAT_FOLDS_INL
#else
#define HEDDLE_KERNELS_FLOAT_FOLDS_INL
#endif

#include "engine/kernels/float_ops_inl.hpp"
#include "engine/kernels/fold_inl.hpp"
#include "engine/kernels/kernels.hpp"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::HWY_NAMESPACE {

template <class Element>
FoldFn float_folds(Op op, Stores stores) {
  switch (op) {
    case Op::sum:
      return stores == Stores::streaming ? &fold_streaming<Element, FloatSum> : &fold<Element, FloatSum>;
    case Op::prod:
      return &fold<Element, FloatProd>;
    case Op::min:
      return &fold<Element, FloatMin>;
    case Op::max:
      return &fold<Element, FloatMax>;
    default:
      return nullptr;
  }
}

}  // namespace heddle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
