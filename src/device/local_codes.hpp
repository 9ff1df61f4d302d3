// What a rank's GPU codes by itself for an allreduce through a codec: this rank's contributions
// (src/compress/coded_run.hpp). So the host sees codes of the vector, and the values of those chunks alone
// that it folds; what it sends is what it would code itself.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "compress/coded_run.hpp"
#include "device/device_path.hpp"
#include "device/local_gpu.hpp"
#include "gpu/gpu.hpp"

namespace heddle {

// Of one call.
class LocalCodes {
 public:
  LocalCodes(gpu::Gpu& gpu, LocalLink& at, const DeviceCoded& job, CodedPlan plan, float* residual);

  // Memory for it. A failure changes nothing, as in what follows.
  Status reserve();
  // Codes the contributions, the residual added, which stays as it is. Complete on return.
  Status code();

  // In the host's memory, until the end of this, as CodedBinding wants them. `lost` is null without a
  // residual.
  const std::byte* contributions() const { return static_cast<const std::byte*>(contributions_.host()); }
  const float* held() const { return static_cast<const float*>(held_.host()); }
  float* lost() { return residual_ != nullptr ? lost_.data() : nullptr; }

  // Once all ranks are known to have their part: what the contributions leave out is the residual from now
  // on. Waits for nothing.
  void keep();
  // Waits for that, which must have read the input before the result is written.
  void settle() {
    if (keeps_) kept_ = at_.finish(std::move(kept_));
  }
  // Ends the call, `complete` or not: the residual has what was lost of sums as well. A failure is no affair
  // of the other ranks, who have theirs.
  Status finish(bool complete);

 private:
  std::size_t held_bytes() const { return plan_.held.count * sizeof(float); }
  Status give_codes(float* left_out);

  gpu::Gpu& gpu_;
  LocalLink& at_;
  const DeviceCoded job_;
  const CodedPlan plan_;
  float* const residual_;  // where it lies on the GPU; null: none
  std::byte* codes_ = nullptr;
  float* sums_ = nullptr;  // what is held, with the residual
  gpu::Image contributions_;
  gpu::Image held_;
  std::vector<float> lost_;
  Status kept_;
  bool keeps_ = false;
};

}  // namespace heddle
