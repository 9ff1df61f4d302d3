#include "kernel_twins.hpp"

#include "gpu/kernels/fold.hpp"
#include "gpu/kernels/list.hpp"

namespace heddle::test {
namespace {

using namespace gpu::kernels;

// Blocks and threads from the last to the first: nothing may depend on their order.
template <class Element, class Operation>
void run(const FoldArguments& arguments, unsigned blocks) {
  for (unsigned block = blocks; block-- > 0;) {
    for (unsigned thread = kThreads; thread-- > 0;)
      fold_share<Element, Operation>(arguments, Thread{block, blocks, thread});
  }
}

#define HEDDLE_TWIN(name, Element, Operation) \
  KernelTwin{"heddle_" #name, sizeof(Element::Stored), &run<Element, Operation>},
constexpr KernelTwin kTwins[] = {HEDDLE_FLOAT_KERNELS(HEDDLE_TWIN) HEDDLE_HALF_KERNELS(HEDDLE_TWIN)
                                     HEDDLE_FP8_KERNELS(HEDDLE_TWIN) HEDDLE_INTEGER_KERNELS(HEDDLE_TWIN)
                                         HEDDLE_BIT_KERNELS(HEDDLE_TWIN)};

}  // namespace

const KernelTwin* find_twin(std::string_view name) {
  for (const KernelTwin& twin : kTwins) {
    if (name == twin.name) return &twin;
  }
  return nullptr;
}

}  // namespace heddle::test
