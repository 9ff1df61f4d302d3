// A kernel for each line of a family's list.
#pragma once

#include "gpu/kernels/fold.hpp"
#include "gpu/kernels/list.hpp"

#define HEDDLE_KERNEL(name, Element, Operation)                                              \
  extern "C" __global__ void __launch_bounds__(heddle::gpu::kernels::kThreads)               \
      heddle_##name(const __grid_constant__ heddle::gpu::kernels::FoldArguments arguments) { \
    using namespace heddle::gpu::kernels;                                                    \
    fold_share<Element, Operation>(arguments, Thread{blockIdx.x, gridDim.x, threadIdx.x});   \
  }
