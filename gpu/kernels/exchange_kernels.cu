#include "gpu/kernels/exchange.hpp"

extern "C" __global__ void __launch_bounds__(heddle::gpu::kernels::kThreads)
    heddle_exchange(const __grid_constant__ heddle::gpu::kernels::ExchangeArguments arguments) {
  using namespace heddle::gpu::kernels;
  __shared__ ExchangeShared shared;
  exchange(Block{blockIdx.x, gridDim.x}, arguments, shared);
}
