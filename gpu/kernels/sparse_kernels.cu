#include "gpu/kernels/sparse_list.hpp"

// Four blocks of a multiprocessor have 64 KiB on their way, or twice that. (nvcc warns that sm_75 has not
// room for four, and lets it be.)
#define HEDDLE_SELECT_KERNEL(name, Bits, Index, kPass)                                         \
  extern "C" __global__ void __launch_bounds__(heddle::gpu::kernels::kThreads, 4)              \
      heddle_##name(const __grid_constant__ heddle::gpu::kernels::SelectArguments arguments) { \
    using namespace heddle::gpu::kernels;                                                      \
    __shared__ PassShared<kPass>::Type shared;                                                 \
    select_by<Bits, Index, kPass>(Block{blockIdx.x, gridDim.x}, arguments, shared);            \
  }

#define HEDDLE_SCATTER_KERNEL(name, Element, Index, Operation)                                       \
  extern "C" __global__ void __launch_bounds__(heddle::gpu::kernels::kThreads)                       \
      heddle_##name(const __grid_constant__ heddle::gpu::kernels::ScatterArguments arguments) {      \
    using namespace heddle::gpu::kernels;                                                            \
    scatter_share<Element, Index, Operation>(arguments, Thread{blockIdx.x, gridDim.x, threadIdx.x}); \
  }

#define HEDDLE_CHECK_KERNEL(name, Index)                                                      \
  extern "C" __global__ void __launch_bounds__(heddle::gpu::kernels::kThreads)                \
      heddle_##name(const __grid_constant__ heddle::gpu::kernels::CheckArguments arguments) { \
    using namespace heddle::gpu::kernels;                                                     \
    check_share<Index>(arguments, Thread{blockIdx.x, gridDim.x, threadIdx.x});                \
  }

#define HEDDLE_FORGET_KERNEL(name, Index)                                                      \
  extern "C" __global__ void __launch_bounds__(heddle::gpu::kernels::kThreads)                 \
      heddle_##name(const __grid_constant__ heddle::gpu::kernels::ForgetArguments arguments) { \
    using namespace heddle::gpu::kernels;                                                      \
    forget_share<Index>(arguments, Thread{blockIdx.x, gridDim.x, threadIdx.x});                \
  }

// Three blocks of a multiprocessor: what a thread has of a tile stays in its registers while the tile's place
// is found.
#define HEDDLE_MERGE_KERNEL(name, Element, Index)                                             \
  extern "C" __global__ void __launch_bounds__(heddle::gpu::kernels::kThreads, 3)             \
      heddle_##name(const __grid_constant__ heddle::gpu::kernels::MergeArguments arguments) { \
    using namespace heddle::gpu::kernels;                                                     \
    __shared__ MergeShared<Index, typename Element::Stored> shared;                           \
    merge_entries<Element, Index>(Block{blockIdx.x, gridDim.x}, arguments, shared);           \
  }

#define HEDDLE_SPREAD_KERNEL(name, Stored, Index)                                              \
  extern "C" __global__ void __launch_bounds__(heddle::gpu::kernels::kThreads)                 \
      heddle_##name(const __grid_constant__ heddle::gpu::kernels::SpreadArguments arguments) { \
    using namespace heddle::gpu::kernels;                                                      \
    __shared__ SpreadShared shared;                                                            \
    spread_entries<Stored, Index>(Block{blockIdx.x, gridDim.x}, arguments, shared);            \
  }

HEDDLE_SELECT_KERNELS(HEDDLE_SELECT_KERNEL)
HEDDLE_MERGE_KERNELS(HEDDLE_MERGE_KERNEL)
HEDDLE_SCATTER_KERNELS(HEDDLE_SCATTER_KERNEL)
HEDDLE_SPREAD_KERNELS(HEDDLE_SPREAD_KERNEL)

HEDDLE_CHECK_KERNELS(HEDDLE_CHECK_KERNEL)
HEDDLE_FORGET_KERNELS(HEDDLE_FORGET_KERNEL)

extern "C" __global__ void __launch_bounds__(heddle::gpu::kernels::kThreads)
    heddle_forget_rest(const __grid_constant__ heddle::gpu::kernels::ForgetArguments arguments) {
  using namespace heddle::gpu::kernels;
  forget_rest_share(arguments, Thread{blockIdx.x, gridDim.x, threadIdx.x});
}

extern "C" __global__ void __launch_bounds__(heddle::gpu::kernels::kThreads)
    heddle_count_digits(const __grid_constant__ heddle::gpu::kernels::DigitArguments arguments) {
  using namespace heddle::gpu::kernels;
  __shared__ DigitShared shared;
  count_digits(Block{blockIdx.x, gridDim.x}, arguments, shared);
}

#define HEDDLE_QUANTISE_KERNEL(name, Code)                                                       \
  extern "C" __global__ void __launch_bounds__(heddle::gpu::kernels::kThreads)                   \
      heddle_##name(const __grid_constant__ heddle::gpu::kernels::QuantiseArguments arguments) { \
    using namespace heddle::gpu::kernels;                                                        \
    __shared__ Code::Shared shared;                                                              \
    Code::quantise(Block{blockIdx.x, gridDim.x}, arguments, shared);                             \
  }

#define HEDDLE_DEQUANTISE_KERNEL(name, Code)                                                       \
  extern "C" __global__ void __launch_bounds__(heddle::gpu::kernels::kThreads)                     \
      heddle_##name(const __grid_constant__ heddle::gpu::kernels::DequantiseArguments arguments) { \
    using namespace heddle::gpu::kernels;                                                          \
    dequantise_share<Code>(arguments, Thread{blockIdx.x, gridDim.x, threadIdx.x});                 \
  }

HEDDLE_QUANTISE_KERNELS(HEDDLE_QUANTISE_KERNEL)
HEDDLE_DEQUANTISE_KERNELS(HEDDLE_DEQUANTISE_KERNEL)

#define HEDDLE_PACK_BITMAP_KERNEL(name, Index)                                                     \
  extern "C" __global__ void __launch_bounds__(heddle::gpu::kernels::kThreads)                     \
      heddle_##name(const __grid_constant__ heddle::gpu::kernels::PackBitmapArguments arguments) { \
    using namespace heddle::gpu::kernels;                                                          \
    pack_bitmap_share<Index>(arguments, Thread{blockIdx.x, gridDim.x, threadIdx.x});               \
  }

#define HEDDLE_UNPACK_BITMAP_KERNEL(name, Index)                                               \
  extern "C" __global__ void __launch_bounds__(heddle::gpu::kernels::kThreads)                 \
      heddle_##name(const __grid_constant__ heddle::gpu::kernels::UnpackArguments arguments) { \
    using namespace heddle::gpu::kernels;                                                      \
    __shared__ BitmapShared shared;                                                            \
    unpack_bitmap<Index>(Block{blockIdx.x, gridDim.x}, arguments, shared);                     \
  }

#define HEDDLE_PACK_DELTA_KERNEL(name, Index)                                                     \
  extern "C" __global__ void __launch_bounds__(heddle::gpu::kernels::kThreads)                    \
      heddle_##name(const __grid_constant__ heddle::gpu::kernels::PackDeltaArguments arguments) { \
    using namespace heddle::gpu::kernels;                                                         \
    __shared__ PackShared<Index> shared;                                                          \
    pack_delta<Index>(Block{blockIdx.x, gridDim.x}, arguments, shared);                           \
  }

#define HEDDLE_UNPACK_DELTA_KERNEL(name, Index)                                                \
  extern "C" __global__ void __launch_bounds__(heddle::gpu::kernels::kThreads)                 \
      heddle_##name(const __grid_constant__ heddle::gpu::kernels::UnpackArguments arguments) { \
    using namespace heddle::gpu::kernels;                                                      \
    __shared__ UnpackShared<Index> shared;                                                     \
    unpack_delta<Index>(Block{blockIdx.x, gridDim.x}, arguments, shared);                      \
  }

HEDDLE_PACK_BITMAP_KERNELS(HEDDLE_PACK_BITMAP_KERNEL)
HEDDLE_UNPACK_BITMAP_KERNELS(HEDDLE_UNPACK_BITMAP_KERNEL)
HEDDLE_PACK_DELTA_KERNELS(HEDDLE_PACK_DELTA_KERNEL)
HEDDLE_UNPACK_DELTA_KERNELS(HEDDLE_UNPACK_DELTA_KERNEL)
