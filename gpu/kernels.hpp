// Reductions on GPUs: what fold_kernel (src/engine/kernels) does in the host's memory, with the same bits.
// For gpu/ alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>

#include "base/dtype.hpp"
#include "base/status.hpp"
#include "gpu/driver.hpp"
#include "gpu/kernel_library.hpp"
#include "gpu/kernels/choice.hpp"

namespace heddle::gpu {

// Kernels are looked up when they are first wanted, and hold for all contexts of the process. Any thread.
class Kernels {
 public:
  // `driver` outlives this.
  explicit Kernels(const Driver& driver);
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;
  // No fold is on its way.
  ~Kernels() = default;

  // outputs[m][i] = inputs[0][i] op ... op inputs[n-1][i], from left to right, for all m: a fold and its
  // copies in one pass. Given to `stream`, of the calling thread's current context; complete when the stream
  // is.
  //
  // Every address is one that the context's device can reach, and needs no alignment (where all are congruent
  // modulo 16 it is faster). An output may be exactly one of the inputs; any other overlap is undefined. One
  // input is copied, without a change to its bits. `unsupported`: not by this build, driver or device, or not
  // for this type; nothing was started, and the host can do it.
  Status fold(CUstream stream, DType type, Op op, std::span<const void* const> inputs,
              std::span<void* const> outputs, std::size_t count);
  // Whether there is a kernel for it, which is loaded into the current context now, so that fold() need not.
  Status load(DType type, Op op);

 private:
  // What is launched.
  struct Found {
    kernels::Choice choice{};
    CUfunction function = nullptr;
  };
  // What is known of a kernel.
  struct Kernel {
    Found found;  // the driver's function once that has been looked up, and then for good
    ReadyContexts ready;
  };
  Kernel& at(DType type, Op op) {
    return kernels_[static_cast<std::size_t>(type)][static_cast<std::size_t>(op)];
  }
  Result<Found> kernel(DType type, Op op);
  Result<Found> copying(DType type);
  Status look_up(const kernels::Choice& choice, Found* found);
  Status make_ready(Kernel& kernel, const Found& found, const ContextInstance& context);

  static constexpr std::size_t kFamilies = 5;
  const Driver& driver_;
  Multiprocessors multiprocessors_;
  std::mutex mutex_;  // for what is below, but `ready`
  std::array<KernelLibrary, kFamilies> libraries_;
  std::array<std::array<Kernel, kOpCount>, kDTypeCount> kernels_{};
  Kernel copy_;
};

}  // namespace heddle::gpu
