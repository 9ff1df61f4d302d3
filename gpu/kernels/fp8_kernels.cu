#include "gpu/kernels/kernel.cuh"

HEDDLE_FP8_KERNELS(HEDDLE_KERNEL)
