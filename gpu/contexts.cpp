#include "gpu/contexts.hpp"

namespace heddle::gpu {

Contexts::~Contexts() {
  if (primary_.empty()) return;
  const Aside aside(driver_);
  // Where CUDA went first, at the end of the process, this fails and does no harm.
  for (const auto& [device, context] : primary_)
    driver_.DevicePrimaryCtxRelease(device);
}

Result<CUcontext> Contexts::of(const Place& place) {
  auto* const given = static_cast<CUcontext>(place.context);
  const std::lock_guard lock(mutex_);
  const auto found = primary_.find(place.device);
  if (found != primary_.end()) return given != nullptr ? given : found->second;
  const Aside aside(driver_);
  unsigned flags = 0;
  int active = 0;
  // One that nobody has is not made for the sake of memory in another context.
  if (given != nullptr &&
      (driver_.DevicePrimaryCtxGetState(place.device, &flags, &active) != CUDA_SUCCESS || active == 0))
    return given;
  CUcontext context = nullptr;
  const CUresult error = driver_.DevicePrimaryCtxRetain(&context, place.device);
  if (error != CUDA_SUCCESS)
    return cuda_error(driver_, error, "the primary context of GPU " + std::to_string(place.device));
  primary_[place.device] = context;
  return given != nullptr ? given : context;
}

std::uint64_t instance_of(const Driver& driver, CUcontext context) {
  unsigned long long id = 0;
  if (driver.CtxGetId != nullptr && driver.CtxGetId(context, &id) != CUDA_SUCCESS) return UINT64_MAX;
  return id;
}

CUresult wait_for(const Driver& driver, CUstream stream) {
  const CUresult waited = driver.StreamSynchronize(stream);
  if (!is_of_capture(waited)) return waited;
  const Aside aside(driver);
  static_cast<void>(driver.StreamSynchronize(stream));
  return waited;
}

Current::Current(const Driver& driver, CUcontext context, std::uint64_t instance) : driver_(driver) {
  if (instance_of(driver, context) == instance) {
    enter(context);
  } else {
    error_ = CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
}

Current::Current(const Driver& driver, CUcontext context) : driver_(driver) {
  enter(context);
}

void Current::enter(CUcontext context) {
  CUcontext now = nullptr;
  if (driver_.CtxGetCurrent(&now) == CUDA_SUCCESS && now == context) return;
  error_ = driver_.CtxPushCurrent(context);
  pushed_ = error_ == CUDA_SUCCESS;
}

Current::~Current() {
  CUcontext popped = nullptr;
  if (pushed_) driver_.CtxPopCurrent(&popped);
}

}  // namespace heddle::gpu
