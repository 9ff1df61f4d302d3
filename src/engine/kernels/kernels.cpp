// Picks the kernel. The instruction set is resolved here, once per lookup: a call through the pointer does
// not dispatch again.
#include "engine/kernels/kernels.hpp"

#include "engine/kernels/families.hpp"
#include "engine/kernels/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::HWY_NAMESPACE {

const char* target_name() {
  return hwy::TargetName(HWY_TARGET);
}

}  // namespace heddle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::kernels {
namespace {

HWY_EXPORT(target_name);

bool is_arithmetic(Op op) {
  return op == Op::sum || op == Op::prod || op == Op::min || op == Op::max;
}

}  // namespace

const char* chosen_target() {
  return HWY_DYNAMIC_DISPATCH(target_name)();
}

}  // namespace heddle::kernels

namespace heddle {

FoldFn fold_kernel(DType type, Op op, Stores stores) {
  switch (type) {
    case DType::i8:
    case DType::i16:
    case DType::i32:
    case DType::i64:
    case DType::u8:
    case DType::u16:
    case DType::u32:
    case DType::u64:
      return kernels::is_arithmetic(op) ? kernels::fold_integer(type, op, stores)
                                        : kernels::fold_bits(type, op);
    case DType::f16:
    case DType::bf16:
      return kernels::fold_half(type, op, stores);
    case DType::e4m3:
    case DType::e5m2:
      return kernels::fold_fp8(type, op, stores);
    case DType::f32:
    case DType::f64:
      return kernels::fold_float(type, op, stores);
    case DType::c32:
    case DType::c64:
      return op == Op::sum ? kernels::fold_float(type, op, stores) : kernels::fold_complex(type, op);
    case DType::f80:
    case DType::c80:
      return kernels::fold_extended(type, op);
  }
  return nullptr;
}

const char* fold_target() {
  return kernels::chosen_target();
}

}  // namespace heddle
#endif
