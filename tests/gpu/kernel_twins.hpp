// Every kernel as a function of the host: the same text (gpu/kernels), compiled by the host's compiler. One
// thread runs what all threads of the GPU would, one after the other, which is an order that the GPU might
// choose.
#pragma once

#include <cstddef>
#include <string_view>

#include "gpu/kernels/arguments.hpp"

namespace heddle::test {

struct KernelTwin {
  const char* name;   // as in the binary
  std::size_t bytes;  // of an element
  void (*run)(const gpu::kernels::FoldArguments& arguments, unsigned blocks);
};

// Null where there is no kernel of that name.
const KernelTwin* find_twin(std::string_view name);

}  // namespace heddle::test
