// What every launch of a kernel needs: the driver's function for it, and how many multiprocessors there are.
// For gpu/ alone.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "gpu/driver.hpp"
#include "gpu/kernels/choice.hpp"

namespace heddle::gpu {

// A context, and which of those it is that have had its handle (instance_of()).
struct ContextInstance {
  CUcontext context = nullptr;
  std::uint64_t instance = 0;

  bool operator==(const ContextInstance&) const = default;
};
// The calling thread's.
Result<ContextInstance> current_instance(const Driver& driver);

// Contexts that something was loaded into: threads of a process that have a GPU each ask by turns. Any
// thread.
class ReadyContexts {
 public:
  // `load`, where that has not been done for `context`. Who comes while another thread does it waits for that
  // one; whose context is another goes on, since a load may wait for all that its context was given, and that
  // for them.
  Status once(const ContextInstance& context, const std::function<Status()>& load);

 private:
  static constexpr std::size_t kMost = 64;
  void add(const ContextInstance& context);

  std::mutex mutex_;  // for what is below
  std::condition_variable changed_;
  std::vector<ContextInstance> ready_;
  std::vector<ContextInstance> loading_;
};

// The kernels of one binary, which is loaded when the first of them is wanted, for all contexts of the
// process. One thread at a time.
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
  // Loads what find() gave into the current context. The driver would do that at the first launch there: then
  // it may wait for all that the context has been given, so for streams that wait for what another thread is
  // about to launch; and it would say as late as that that there is no code for the GPU. Any thread: so no
  // lock is held by one who waits here, that another one needs for its launch.
  Status make_ready(CUfunction function, const char* name);

 private:
  Status load();

  const Driver& driver_;
  kernels::Family family_;
  CUlibrary library_ = nullptr;
};

// What CUDA says about a kernel, with a way out where it is the kernels that do not fit this machine:
// `unsupported`.
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
