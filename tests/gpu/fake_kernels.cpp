// The double's kernels (fake_cuda.h): each runs as its host twin, when the stream is waited for. The binaries are heddle's own, of
// which only the first word is looked at.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "fake_world.hpp"
#include "kernel_twins.hpp"

using namespace fake;
using heddle::gpu::kernels::FoldArguments;
using heddle::gpu::kernels::kThreads;
using heddle::test::KernelTwin;

struct CUlib_st {
  std::vector<std::unique_ptr<CUkern_st>> kernels;
};
struct CUkern_st {
  const KernelTwin* twin;
};

namespace {

fake_cuda_launch last_launch;

// A kernel may use what the current context's device can reach; where the double has it.
CUresult reach(const void* address, std::size_t bytes, unsigned char** inside) {
  const auto at = reinterpret_cast<Address>(address);
  if (world().find(at) == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
  CUresult error = CUDA_SUCCESS;
  *inside = reinterpret_cast<unsigned char*>(world().inside(at, bytes, current(), &error));
  return error == CUDA_ERROR_INVALID_VALUE ? CUDA_ERROR_ILLEGAL_ADDRESS : error;
}

}  // namespace

FAKE void fake_cuda_last_launch(fake_cuda_launch* launch) {
  const std::lock_guard lock(world().mutex);
  *launch = last_launch;
}

FAKE CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option*, void**, unsigned,
                                CUlibraryOption*, void**, unsigned) {
  ENTER("cuLibraryLoadData")
  constexpr std::uint32_t kFatBinary = 0xBA55ED50U;
  std::uint32_t magic = 0;
  std::memcpy(&magic, code, sizeof magic);
  if (magic != kFatBinary) return CUDA_ERROR_INVALID_IMAGE;
  *library = new CUlib_st;
  return CUDA_SUCCESS;
}
FAKE CUresult cuLibraryUnload(CUlibrary library) {
  ENTER("cuLibraryUnload")
  delete library;
  return CUDA_SUCCESS;
}
FAKE CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  ENTER("cuLibraryGetKernel")
  const KernelTwin* twin = heddle::test::find_twin(name);
  if (twin == nullptr) return CUDA_ERROR_NOT_FOUND;
  library->kernels.push_back(std::make_unique<CUkern_st>(CUkern_st{twin}));
  *kernel = library->kernels.back().get();
  return CUDA_SUCCESS;
}
FAKE CUresult cuLaunchKernel(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned block_x,
                             unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream,
                             void** parameters, void** extra) {
  ENTER("cuLaunchKernel")
  if (!alive(current())) return CUDA_ERROR_INVALID_CONTEXT;
  const bool as_agreed = x > 0 && y == 1 && z == 1 && block_x == kThreads && block_y == 1 && block_z == 1 &&
                         shared_bytes == 0 && extra == nullptr;
  if (!as_agreed) return CUDA_ERROR_INVALID_VALUE;
  const KernelTwin& twin = *reinterpret_cast<CUkernel>(function)->twin;
  // As the driver does: the arguments are copied now, and used later.
  FoldArguments arguments = *static_cast<const FoldArguments*>(parameters[0]);
  last_launch = {twin.name, x, block_x, stream};
  const std::size_t bytes = arguments.count * twin.bytes;
  for (unsigned k = 0; k < arguments.n_inputs; ++k) {
    unsigned char* inside = nullptr;
    if (const CUresult error = reach(arguments.inputs[k], bytes, &inside); error != CUDA_SUCCESS)
      return error;
    arguments.inputs[k] = inside;
  }
  for (unsigned k = 0; k < arguments.n_outputs; ++k) {
    if (const CUresult error = reach(arguments.outputs[k], bytes, &arguments.outputs[k]);
        error != CUDA_SUCCESS)
      return error;
  }
  give(*queue_of(stream), [=] { twin.run(arguments, x); });
  return CUDA_SUCCESS;
}
