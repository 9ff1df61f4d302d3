// The CUDA context that work on a buffer needs, current for as long as that takes.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "gpu/driver.hpp"
#include "gpu/gpu.hpp"

namespace heddle::gpu {

// Memory of no context (pools, mapped memory) is used in the primary context of its device, as the CUDA
// run-time library does. Primary contexts that were asked for, or that memory is in, are kept alive until the
// end of this object: whoever holds their handles may go on asking what has become of them, which the driver
// allows of no context that is gone. A context that a program makes by itself (cuCtxCreate) must outlive what
// uses its memory. Any thread.
class Contexts {
 public:
  explicit Contexts(const Driver& driver) : driver_(driver) {}
  Contexts(const Contexts&) = delete;
  Contexts& operator=(const Contexts&) = delete;
  ~Contexts();

  Result<CUcontext> of(const Place& place);

 private:
  const Driver& driver_;
  std::mutex mutex_;
  std::map<int, CUcontext> primary_;  // by device
};

// Which one of the contexts it is that have had this handle: a primary context that is reset
// (cudaDeviceReset) keeps it, and nothing of what was in it. 0: the driver is older than CUDA 12.0, and does
// not tell.
std::uint64_t instance_of(const Driver& driver, CUcontext context);

// What the driver refuses to the calling thread meanwhile, because streams are being captured.
class CaptureMode {
 public:
  // Never more than it does already.
  CaptureMode(const Driver& driver, CUstreamCaptureMode mode) : driver_(driver), before_(mode) {
    // Not where CUDA is not initialised, which it may be by the end.
    changed_ = driver.ThreadExchangeStreamCaptureMode(&before_) == CUDA_SUCCESS;
    if (changed_ && before_ == CU_STREAM_CAPTURE_MODE_RELAXED) restore();
  }
  CaptureMode(const CaptureMode&) = delete;
  CaptureMode& operator=(const CaptureMode&) = delete;
  ~CaptureMode() {
    if (changed_) restore();
  }

 private:
  void restore() {
    driver_.ThreadExchangeStreamCaptureMode(&before_);
    changed_ = false;
  }

  const Driver& driver_;
  CUstreamCaptureMode before_;
  bool changed_ = false;
};

// Lets the calling thread do what is no part of any work on streams (load kernels, ask about memory) while a
// stream is being captured: the driver would refuse it, and make the capture fail, because it cannot know
// that.
class Aside : CaptureMode {
 public:
  explicit Aside(const Driver& driver) : CaptureMode(driver, CU_STREAM_CAPTURE_MODE_RELAXED) {}
};

// Makes a context the calling thread's current one, and gives back the one before. Captures of other threads
// (in the global mode, the default) are nothing to it: only this thread's own are to fail where it waits for
// work that it has given.
class Current {
 public:
  Current(const Driver& driver, CUcontext context);
  // For those who have something in it: an error where `instance` is not what instance_of() says by now.
  Current(const Driver& driver, CUcontext context, std::uint64_t instance);
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  ~Current();
  CUresult error() const { return error_; }

 private:
  void enter(CUcontext context);

  const Driver& driver_;
  const CaptureMode beside_{driver_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL};
  bool pushed_ = false;
  CUresult error_ = CUDA_SUCCESS;
};

// Waits in the current context for what `stream` was given. Where the calling thread captures a stream, the
// driver refuses to wait, and that is what this returns; but then, too, nothing is under way any more.
CUresult wait_for(const Driver& driver, CUstream stream);

}  // namespace heddle::gpu
