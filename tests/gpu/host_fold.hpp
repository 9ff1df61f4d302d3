// The fold that a GPU's is compared with. Two files have one: the library's own kernels, and, for machines
// without what those need, the host twins of the GPU's, which the tests on the double compare with the
// library's.
#pragma once

#include <cstddef>
#include <vector>

#include "base/dtype.hpp"

namespace heddle::test {

void host_fold(DType type, Op op, void* out, const std::vector<const void*>& inputs, std::size_t count);
const char* host_fold_name();

}  // namespace heddle::test
