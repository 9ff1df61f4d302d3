#include "gpu/kernels.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <optional>

#include "gpu/kernels/binaries.hpp"
#include "gpu/kernels/layout.hpp"

namespace heddle::gpu {
namespace {

using kernels::Choice;

const char* family_name(kernels::Family family) {
  static constexpr const char* kNames[] = {"floating-point numbers", "numbers of 16 bits", "integers",
                                           "bits"};
  return kNames[static_cast<std::size_t>(family)];
}

}  // namespace

Kernels::~Kernels() {
  // Where CUDA went first, at the end of the process, this fails and does no harm.
  for (CUlibrary library : libraries_) {
    if (library != nullptr) driver_.LibraryUnload(library);
  }
}

// With a way out where it is the kernels that do not fit this machine.
Status Kernels::failure(CUresult error, const std::string& what) const {
  Status status = cuda_error(driver_, error, what);
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

Status Kernels::load_family(kernels::Family family) {
  const void* binary = kernels::binary(family);
  if (binary == nullptr)
    return Status(Code::unsupported, "this heddle was built without nvcc, and has no kernels for GPUs");
  if (driver_.LibraryLoadData == nullptr || driver_.LibraryGetKernel == nullptr ||
      driver_.LibraryUnload == nullptr)
    return Status(Code::unsupported,
                  "the driver has no cuLibraryLoadData: kernels need that of CUDA 12.0 or later");
  CUlibrary& library = libraries_[static_cast<std::size_t>(family)];
  const CUresult error = driver_.LibraryLoadData(&library, binary, nullptr, nullptr, 0, nullptr, nullptr, 0);
  if (error == CUDA_SUCCESS) return {};
  library = nullptr;
  return failure(error, fmt::format("loading the kernels for {}", family_name(family)));
}

Status Kernels::look_up(const Choice& choice, Kernel* kernel) {
  CUlibrary& library = libraries_[static_cast<std::size_t>(choice.family)];
  if (library == nullptr) HEDDLE_TRY(load_family(choice.family));
  const std::string name = std::string("heddle_") + choice.name;
  CUkernel found = nullptr;
  const CUresult error = driver_.LibraryGetKernel(&found, library, name.c_str());
  if (error != CUDA_SUCCESS) return failure(error, "looking up the kernel " + name);
  kernel->choice = choice;
  // A kernel of a library stands for itself in whatever context is current at the launch.
  kernel->function = reinterpret_cast<CUfunction>(found);
  return {};
}

Result<Kernels::Kernel> Kernels::kernel(DType type, Op op) {
  const std::lock_guard lock(mutex_);
  Kernel& known = kernels_[static_cast<std::size_t>(type)][static_cast<std::size_t>(op)];
  if (known.function != nullptr) [[likely]]
    return known;
  const std::optional<Choice> choice = kernels::choose(type, op);
  if (!choice)
    return Status(Code::unsupported,
                  fmt::format("there is no kernel for {} of {} on GPUs", op_name(op), dtype_name(type)));
  HEDDLE_TRY(look_up(*choice, &known));
  return known;
}

// One input of any type, whatever the operation.
Result<Kernels::Kernel> Kernels::copying(DType type) {
  const std::lock_guard lock(mutex_);
  if (copy_.function == nullptr) HEDDLE_TRY(look_up(kernels::copy_choice(), &copy_));
  Kernel kernel = copy_;
  kernel.choice.parts = dtype_size(type);
  return kernel;
}

Result<unsigned> Kernels::multiprocessors() {
  CUdevice device = 0;
  CUresult error = driver_.CtxGetDevice(&device);
  if (error != CUDA_SUCCESS) return cuda_error(driver_, error, "a fold on a GPU needs a current context");
  const auto index = static_cast<std::size_t>(device);
  const std::lock_guard lock(mutex_);
  if (index < kMostDevices && multiprocessors_[index] != 0) [[likely]]
    return multiprocessors_[index];
  int count = 0;
  error = driver_.DeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
  if (error != CUDA_SUCCESS || count < 1)
    return cuda_error(driver_, error, fmt::format("asking for the multiprocessors of GPU {}", device));
  if (index < kMostDevices) multiprocessors_[index] = static_cast<unsigned>(count);
  return static_cast<unsigned>(count);
}

Status Kernels::fold(CUstream stream, DType type, Op op, std::span<const void* const> inputs,
                     std::span<void* const> outputs, std::size_t count) {
  if (inputs.empty() || inputs.size() > kernels::kMostInputs || outputs.empty() ||
      outputs.size() > kernels::kMostOutputs)
    return Status(Code::unsupported,
                  fmt::format("a fold on a GPU of {} inputs to {} outputs; it takes 1 to {} and 1 to {}",
                              inputs.size(), outputs.size(), kernels::kMostInputs, kernels::kMostOutputs));
  const Result<Kernel> kernel = inputs.size() == 1 ? copying(type) : this->kernel(type, op);
  if (!kernel.ok()) return kernel.status();
  const Result<unsigned> multiprocessors = this->multiprocessors();
  if (!multiprocessors.ok()) return multiprocessors.status();
  const Choice& choice = kernel->choice;
  kernels::Launch launch = kernels::lay_out(inputs, outputs, std::uint64_t{count} * choice.parts,
                                            choice.bytes, choice.alignment, multiprocessors.value());
  if (launch.blocks == 0) return {};
  void* parameters[] = {&launch.arguments};
  const CUresult error = driver_.LaunchKernel(kernel->function, launch.blocks, 1, 1, kernels::kThreads, 1, 1,
                                              0, stream, parameters, nullptr);
  if (error == CUDA_SUCCESS) return {};
  return failure(error, fmt::format("starting the kernel heddle_{}", choice.name));
}

}  // namespace heddle::gpu
