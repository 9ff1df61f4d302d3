// SparseKernels: every kernel that there is, loaded before the first of them is launched.
#include "gpu/kernels/sparse_list.hpp"
#include "gpu/sparse_kernels.hpp"

namespace heddle::gpu {
namespace {

// clang-format off
#define HEDDLE_NAME(name, ...) #name,
constexpr const char* kNames[] = {
  HEDDLE_SELECT_KERNELS(HEDDLE_NAME) HEDDLE_SCATTER_KERNELS(HEDDLE_NAME) HEDDLE_MERGE_KERNELS(HEDDLE_NAME)
  HEDDLE_SPREAD_KERNELS(HEDDLE_NAME)
  HEDDLE_CHECK_KERNELS(HEDDLE_NAME) HEDDLE_FORGET_KERNELS(HEDDLE_NAME)
  HEDDLE_PACK_BITMAP_KERNELS(HEDDLE_NAME) HEDDLE_UNPACK_BITMAP_KERNELS(HEDDLE_NAME)
  HEDDLE_PACK_DELTA_KERNELS(HEDDLE_NAME) HEDDLE_UNPACK_DELTA_KERNELS(HEDDLE_NAME)
  HEDDLE_QUANTISE_KERNELS(HEDDLE_NAME) HEDDLE_DEQUANTISE_KERNELS(HEDDLE_NAME)
  "forget_rest", "count_digits"};
// clang-format on

}  // namespace

// All of them, since what a call needs depends on its types, its indices and how many are equal.
Status SparseKernels::load() {
  const Result<ContextInstance> context = current_instance(driver_);
  if (!context.ok()) return context.status();
  return ready_.once(context.value(), [this]() -> Status {
    for (const char* name : kNames) {
      const Result<CUfunction> found = function(name);
      if (!found.ok()) return found.status();
      HEDDLE_TRY(library_.make_ready(found.value(), name));
    }
    return {};
  });
}

}  // namespace heddle::gpu
