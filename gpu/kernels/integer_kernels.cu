#include "gpu/kernels/kernel.cuh"

HEDDLE_INTEGER_KERNELS(HEDDLE_KERNEL)
