#include "gpu/kernels/kernel.cuh"

HEDDLE_FLOAT_KERNELS(HEDDLE_KERNEL)
