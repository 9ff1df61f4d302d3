// Host reduction kernels: every meaningful (element type, operation), SIMD chosen at run time by Highway.
#pragma once

#include "base/dtype.hpp"

namespace heddle {

// The kernel, or null where the pair has no meaning (bitwise on floats, min on complex).
FoldFn fold_kernel(DType type, Op op);

// Name of the instruction set the kernels run with here ("AVX3", "AVX2", ...), for heddle-info.
const char* fold_target();

}  // namespace heddle
