#include "gpu/kernels.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <optional>

#include "gpu/kernels/layout.hpp"

namespace heddle::gpu {

using kernels::Choice;
using kernels::Family;

Kernels::Kernels(const Driver& driver)
    : driver_(driver),
      multiprocessors_(driver),
      libraries_{KernelLibrary(driver, Family::floats), KernelLibrary(driver, Family::halves),
                 KernelLibrary(driver, Family::fp8), KernelLibrary(driver, Family::integers),
                 KernelLibrary(driver, Family::bits)} {}

Status Kernels::look_up(const Choice& choice, Found* found) {
  const Result<CUfunction> function = libraries_[static_cast<std::size_t>(choice.family)].find(choice.name);
  if (!function.ok()) return function.status();
  *found = {choice, function.value()};
  return {};
}

Result<Kernels::Found> Kernels::kernel(DType type, Op op) {
  const std::lock_guard lock(mutex_);
  Found& known = at(type, op).found;
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
Result<Kernels::Found> Kernels::copying(DType type) {
  const std::lock_guard lock(mutex_);
  if (copy_.found.function == nullptr) HEDDLE_TRY(look_up(kernels::copy_choice(), &copy_.found));
  Found found = copy_.found;
  found.choice.parts = dtype_size(type);
  return found;
}

Status Kernels::make_ready(Kernel& kernel, const Found& found, const ContextInstance& context) {
  const Choice& choice = found.choice;
  return kernel.ready.once(context, [&] {
    return libraries_[static_cast<std::size_t>(choice.family)].make_ready(found.function, choice.name);
  });
}

// Also the one that moves a single input.
Status Kernels::load(DType type, Op op) {
  const Result<Found> folds = kernel(type, op);
  if (!folds.ok()) return folds.status();
  const Result<Found> copies = copying(type);
  if (!copies.ok()) return copies.status();
  const Result<ContextInstance> context = current_instance(driver_);
  if (!context.ok()) return context.status();
  HEDDLE_TRY(make_ready(at(type, op), folds.value(), context.value()));
  return make_ready(copy_, copies.value(), context.value());
}

Status Kernels::fold(CUstream stream, DType type, Op op, std::span<const void* const> inputs,
                     std::span<void* const> outputs, std::size_t count) {
  if (inputs.empty() || inputs.size() > kernels::kMostInputs || outputs.empty() ||
      outputs.size() > kernels::kMostOutputs)
    return Status(Code::unsupported,
                  fmt::format("a fold on a GPU of {} inputs to {} outputs; it takes 1 to {} and 1 to {}",
                              inputs.size(), outputs.size(), kernels::kMostInputs, kernels::kMostOutputs));
  const Result<Found> kernel = inputs.size() == 1 ? copying(type) : this->kernel(type, op);
  if (!kernel.ok()) return kernel.status();
  const Result<unsigned> multiprocessors = multiprocessors_.count();
  if (!multiprocessors.ok()) return multiprocessors.status();
  const Choice& choice = kernel->choice;
  kernels::Launch launch = kernels::lay_out(inputs, outputs, std::uint64_t{count} * choice.parts,
                                            choice.bytes, choice.alignment, multiprocessors.value());
  if (launch.blocks == 0) return {};
  void* parameters[] = {&launch.arguments};
  const CUresult error = driver_.LaunchKernel(kernel->function, launch.blocks, 1, 1, kernels::kThreads, 1, 1,
                                              0, stream, parameters, nullptr);
  if (error == CUDA_SUCCESS) return {};
  return kernel_failure(driver_, error, fmt::format("starting the kernel heddle_{}", choice.name));
}

}  // namespace heddle::gpu
