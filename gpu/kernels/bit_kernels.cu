#include "gpu/kernels/kernel.cuh"

HEDDLE_BIT_KERNELS(HEDDLE_KERNEL)
