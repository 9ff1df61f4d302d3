// SparseKernels: every kernel that there is, loaded before the first of them is launched.
#include "gpu/contexts.hpp"
#include "gpu/kernels/sparse_list.hpp"
#include "gpu/sparse_kernels.hpp"

namespace heddle::gpu {
namespace {

// clang-format off
#define HEDDLE_NAME(name, ...) #name,
constexpr const char* kNames[] = {
  HEDDLE_SELECT_KERNELS(HEDDLE_NAME) HEDDLE_SCATTER_KERNELS(HEDDLE_NAME) HEDDLE_MERGE_KERNELS(HEDDLE_NAME)
  HEDDLE_CHECK_KERNELS(HEDDLE_NAME) HEDDLE_FORGET_KERNELS(HEDDLE_NAME)
  HEDDLE_PACK_BITMAP_KERNELS(HEDDLE_NAME) HEDDLE_UNPACK_BITMAP_KERNELS(HEDDLE_NAME)
  HEDDLE_PACK_DELTA_KERNELS(HEDDLE_NAME) HEDDLE_UNPACK_DELTA_KERNELS(HEDDLE_NAME)
  HEDDLE_QUANTISE_KERNELS(HEDDLE_NAME) HEDDLE_DEQUANTISE_KERNELS(HEDDLE_NAME)
  "forget_rest", "count_digits"};
// clang-format on

}  // namespace

// All of them, since what a call needs depends on its types, its indices and how many are equal. Two threads may do it for the same context: that does no harm.
Status SparseKernels::load() {
  CUcontext context = nullptr;
  const CUresult error = driver_.CtxGetCurrent(&context);
  if (error != CUDA_SUCCESS) return cuda_error(driver_, error, "asking for the current context");
  const std::uint64_t instance = instance_of(driver_, context);
  {
    const std::lock_guard lock(mutex_);
    if (ready_.has(context, instance)) return {};
  }
  for (const char* name : kNames) {
    const Result<CUfunction> found = function(name);
    if (!found.ok()) return found.status();
    HEDDLE_TRY(library_.make_ready(found.value(), name));
  }
  const std::lock_guard lock(mutex_);
  ready_.add(context, instance);
  return {};
}

}  // namespace heddle::gpu
