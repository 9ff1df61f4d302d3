// Host reduction kernels: every meaningful (element type, operation), SIMD chosen at run time by Highway.
#pragma once

#include "base/dtype.hpp"

namespace heddle {

// How a kernel writes `out` (`out2` always goes through the cache).
//
// `streaming` stores past the cache, which saves reading the lines that are about to be overwritten: for an
// output that is large and not read again soon. It is a hint: only sums have it, and only where `out` is no
// input and aligned to its elements; results are the same bits. The stores are complete, as seen by other
// threads and processes, with any store after the call.
enum class Stores : std::uint8_t { cached, streaming };

// The kernel, or null where the pair has no meaning (logical and bitwise on floats, min on complex). Resolves
// the instruction set; look up once and keep the pointer. Thread-safe.
//
// min and max are `b < a ? b : a` and `b > a ? b : a` for operands a, b from left to right: a tie (+0, -0) or
// a NaN on either side gives the left one. A complex product is C's, with infinities recovered.
//
// A result of e4m3 or e5m2 that is too large is stored as the largest finite number of its sign. Of e5m2
// infinities in inputs stay infinite, and so does a product that overflows f32 itself.
FoldFn fold_kernel(DType type, Op op, Stores stores = Stores::cached);

// Name of the instruction set the kernels run with here ("AVX3", "AVX2", ...), for heddle-info.
const char* fold_target();

}  // namespace heddle
