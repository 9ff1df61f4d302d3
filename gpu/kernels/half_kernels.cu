#include "gpu/kernels/kernel.cuh"

HEDDLE_HALF_KERNELS(HEDDLE_KERNEL)
