#include "host_fold.hpp"

#include "engine/kernels/kernels.hpp"

namespace heddle::test {

void host_fold(DType type, Op op, void* out, const std::vector<const void*>& inputs, std::size_t count) {
  fold_kernel(type, op)(out, nullptr, inputs.data(), static_cast<unsigned>(inputs.size()), count);
}

const char* host_fold_name() {
  return fold_target();
}

}  // namespace heddle::test
