// The compiled kernels, which are part of the library.
#pragma once

#include "gpu/kernels/choice.hpp"

namespace heddle::gpu::kernels {

// A fat binary as the driver takes it; null in a build without nvcc.
const void* binary(Family family);
// What they were compiled for, as in "sm_80, sm_90, PTX of 80"; empty in a build without nvcc.
const char* architectures();

}  // namespace heddle::gpu::kernels
