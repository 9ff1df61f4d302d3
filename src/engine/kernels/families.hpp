// The kernels by family. Each family is a source file of its own, so that each compiles in bounded time.
// All functions return null where the pair has no meaning in that family.
#pragma once

#include "base/dtype.hpp"
#include "engine/kernels/kernels.hpp"

namespace heddle::kernels {

FoldFn fold_float(DType type, Op op, Stores stores);    // f32, f64; sums of c32 and c64
FoldFn fold_half(DType type, Op op, Stores stores);     // f16, bf16
FoldFn fold_fp8(DType type, Op op, Stores stores);      // e4m3, e5m2
FoldFn fold_integer(DType type, Op op, Stores stores);  // sum, prod, min, max of integers
FoldFn fold_bits(DType type, Op op);                    // logical and bitwise operations on integers
FoldFn fold_complex(DType type, Op op);                 // products of c32 and c64
FoldFn fold_extended(DType type, Op op);                // f80, c80

}  // namespace heddle::kernels
