// The kernels of sparse vectors as functions of the host, from the same text (gpu/kernels): what
// kernel_twins.hpp is for folds. One block after the other runs to its end, the last one first.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

namespace heddle::test {

// The double's face of device memory; null where it is not there.
using Reach = std::function<unsigned char*(const void* address, std::size_t bytes)>;

struct SparseTwin {
  const char* name;  // as in the binary
  std::size_t argument_bytes;
  // Makes the addresses in the arguments the double's; false where one leads nowhere.
  bool (*translate)(void* arguments, const Reach& reach);
  void (*run)(const void* arguments, unsigned blocks);
};

// Null where there is no kernel of that name.
const SparseTwin* find_sparse_twin(std::string_view name);

}  // namespace heddle::test
