#include "gpu/kernel_library.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "gpu/contexts.hpp"
#include "gpu/kernels/binaries.hpp"

namespace heddle::gpu {
namespace {

const char* family_name(kernels::Family family) {
  switch (family) {
    case kernels::Family::floats:
      return "floating-point numbers";
    case kernels::Family::halves:
      return "numbers of 16 bits";
    case kernels::Family::fp8:
      return "floats of 8 bits";
    case kernels::Family::integers:
      return "integers";
    case kernels::Family::bits:
      return "bits";
    case kernels::Family::sparse:
      return "sparse vectors";
    case kernels::Family::exchange:
      return "exchanges of short vectors";
  }
  return "";
}

}  // namespace

Status kernel_failure(const Driver& driver, CUresult error, const std::string& what) {
  Status status = cuda_error(driver, error, what);
  switch (error) {
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_INVALID_SOURCE:
    case CUDA_ERROR_JIT_COMPILATION_DISABLED:
    case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
      return Status(Code::unsupported,
                    fmt::format("{}; heddle has kernels for {}: build it with -Dgpu_archs for this GPU, by "
                                "a CUDA toolkit no newer than the driver",
                                status.message(), kernels::architectures()));
    default:
      return status;
  }
}

KernelLibrary::~KernelLibrary() {
  if (library_ == nullptr) return;
  const Aside aside(driver_);
  // Where CUDA went first, at the end of the process, this fails and does no harm.
  driver_.LibraryUnload(library_);
}

Status KernelLibrary::load() {
  const void* binary = kernels::binary(family_);
  if (binary == nullptr)
    return Status(Code::unsupported, "this heddle was built without nvcc, and has no kernels for GPUs");
  if (driver_.LibraryLoadData == nullptr || driver_.LibraryGetKernel == nullptr ||
      driver_.LibraryUnload == nullptr)
    return Status(Code::unsupported,
                  "the driver has no cuLibraryLoadData: kernels need that of CUDA 12.0 or later");
  const CUresult error = driver_.LibraryLoadData(&library_, binary, nullptr, nullptr, 0, nullptr, nullptr, 0);
  if (error == CUDA_SUCCESS) return {};
  library_ = nullptr;
  return kernel_failure(driver_, error, fmt::format("loading the kernels for {}", family_name(family_)));
}

Result<CUfunction> KernelLibrary::find(const char* name) {
  const Aside aside(driver_);
  if (library_ == nullptr) HEDDLE_TRY(load());
  const std::string full = std::string("heddle_") + name;
  CUkernel found = nullptr;
  const CUresult error = driver_.LibraryGetKernel(&found, library_, full.c_str());
  if (error != CUDA_SUCCESS) return kernel_failure(driver_, error, "looking up the kernel " + full);
  // A kernel of a library stands for itself in whatever context is current at the launch.
  return reinterpret_cast<CUfunction>(found);
}

Status KernelLibrary::make_ready(CUfunction function, const char* name) {
  if (driver_.KernelGetFunction == nullptr) return {};
  const Aside aside(driver_);
  CUfunction here = nullptr;
  CUresult error = driver_.KernelGetFunction(&here, reinterpret_cast<CUkernel>(function));
  if (error == CUDA_SUCCESS && driver_.FuncLoad != nullptr) error = driver_.FuncLoad(here);
  if (error == CUDA_SUCCESS) return {};
  return kernel_failure(driver_, error, fmt::format("loading the kernel heddle_{}", name));
}

Result<ContextInstance> current_instance(const Driver& driver) {
  CUcontext context = nullptr;
  const CUresult error = driver.CtxGetCurrent(&context);
  if (error != CUDA_SUCCESS) return cuda_error(driver, error, "asking for the current context");
  return ContextInstance{context, instance_of(driver, context)};
}

Status ReadyContexts::once(const ContextInstance& context, const std::function<Status()>& load) {
  const auto is_in = [&](const std::vector<ContextInstance>& all) {
    return std::find(all.begin(), all.end(), context) != all.end();
  };
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !is_in(loading_); });
  if (is_in(ready_)) return {};
  loading_.push_back(context);
  lock.unlock();
  Status loaded = load();
  lock.lock();
  std::erase(loading_, context);
  if (loaded.ok()) add(context);
  changed_.notify_all();
  return loaded;
}

// What was said of the same handle before is over. The one that was added first is forgotten where there are
// too many, as of a program that makes contexts and destroys them.
void ReadyContexts::add(const ContextInstance& context) {
  std::erase_if(ready_, [&](const ContextInstance& one) { return one.context == context.context; });
  if (ready_.size() == kMost) ready_.erase(ready_.begin());
  ready_.push_back(context);
}

Result<unsigned> Multiprocessors::count() {
  CUdevice device = 0;
  CUresult error = driver_.CtxGetDevice(&device);
  if (error != CUDA_SUCCESS) return cuda_error(driver_, error, "a kernel on a GPU needs a current context");
  const auto index = static_cast<std::size_t>(device);
  const unsigned known = index < kMostDevices ? counts_[index].load(std::memory_order_relaxed) : 0;
  if (known != 0) [[likely]]
    return known;
  int count = 0;
  error = driver_.DeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
  if (error != CUDA_SUCCESS || count < 1)
    return cuda_error(driver_, error, fmt::format("asking for the multiprocessors of GPU {}", device));
  if (index < kMostDevices) counts_[index].store(static_cast<unsigned>(count), std::memory_order_relaxed);
  return static_cast<unsigned>(count);
}

}  // namespace heddle::gpu
