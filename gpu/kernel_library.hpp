// What every launch of a kernel needs: the driver's function for it, and how many multiprocessors there are. For gpu/ alone.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "gpu/driver.hpp"
#include "gpu/kernels/choice.hpp"

namespace heddle::gpu {

// Contexts that something was loaded into: threads of a process that have a GPU each ask by turns. One thread at a time.
class ReadyContexts {
 public:
  // `instance`: of those that the context has stood for (instance_of()).
  bool has(CUcontext context, std::uint64_t instance) const {
    return std::any_of(all_.begin(), all_.end(),
                       [&](const One& one) { return one.context == context && one.instance == instance; });
  }
  // What was said of the same handle before is over. The one that was added first is forgotten where there are too many, as of a program that makes contexts and destroys them.
  void add(CUcontext context, std::uint64_t instance) {
    std::erase_if(all_, [&](const One& one) { return one.context == context; });
    if (all_.size() == kMost) all_.erase(all_.begin());
    all_.push_back({context, instance});
  }

 private:
  static constexpr std::size_t kMost = 64;
  struct One {
    CUcontext context;
    std::uint64_t instance;
  };
  std::vector<One> all_;
};

// The kernels of one binary, which is loaded when the first of them is wanted, for all contexts of the process. One thread at a time.
class KernelLibrary {
 public:
  // `driver` outlives this.
  KernelLibrary(const Driver& driver, kernels::Family family) : driver_(driver), family_(family) {}
  KernelLibrary(const KernelLibrary&) = delete;
  KernelLibrary& operator=(const KernelLibrary&) = delete;
  // None of its kernels is on its way.
  ~KernelLibrary();

  // `name` without "heddle_". `unsupported`: not by this build, driver or device.
  Result<CUfunction> find(const char* name);
  // Loads what find() gave into the current context. The driver would do that at the first launch there: then it may wait for all that the context has been given, so for streams that wait for
  // what another thread is about to launch; and it would say as late as that that there is no code for the GPU. Any thread: so no lock is
  // held by one who waits here, that another one needs for its launch.
  Status make_ready(CUfunction function, const char* name);

 private:
  Status load();

  const Driver& driver_;
  kernels::Family family_;
  CUlibrary library_ = nullptr;
};

// What CUDA says about a kernel, with a way out where it is the kernels that do not fit this machine: `unsupported`.
Status kernel_failure(const Driver& driver, CUresult error, const std::string& what);

// Of GPUs, each asked once. Any thread.
class Multiprocessors {
 public:
  explicit Multiprocessors(const Driver& driver) : driver_(driver) {}
  // Of the current context's GPU.
  Result<unsigned> count();

 private:
  static constexpr std::size_t kMostDevices = 64;
  const Driver& driver_;
  std::array<std::atomic<unsigned>, kMostDevices> counts_{};  // by device; 0: not asked yet
};

}  // namespace heddle::gpu
