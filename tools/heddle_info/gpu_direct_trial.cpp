#include "heddle_info/gpu_direct_trial.hpp"

#include <memory>

#include "device/gpu_direct.hpp"
#include "gpu/device_memory.hpp"
#include "setup/network_module.hpp"

namespace heddle::info {
namespace {

constexpr std::size_t kShare = std::size_t{1} << 20;

GpuDirectTrial not_tried(const Status& why) {
  return {GpuDirectTrial::Outcome::not_tried, why.message(), {}, false};
}

}  // namespace

GpuDirectTrial try_gpu_direct(const Config& config, int gpu, const std::string& network) {
  const Result<std::unique_ptr<Network>> opened =
      open_network("verbs", config.modules, network_options(config, network));
  if (!opened.ok()) return not_tried(opened.status());
  // A rank that is alone: there is nobody to reach.
  const Result<std::unique_ptr<Transport>> transport = opened.value()->connect(0, {""});
  if (!transport.ok()) return not_tried(transport.status());

  const Result<std::unique_ptr<gpu::DeviceMemory>> memory = gpu::open_device_memory(gpu);
  if (!memory.ok()) return not_tried(memory.status());
  const Result<void*> buffer = memory.value()->allocate(gpu::Kind::device, 4096);
  if (!buffer.ok()) return not_tried(buffer.status());
  gpu::Gpu cuda;
  if (!cuda.present()) return not_tried(Status(Code::unsupported, "there is no driver of CUDA's"));
  const Result<gpu::Place> place = cuda.place(buffer.value());
  if (!place.ok()) return not_tried(place.status());
  const Result<std::unique_ptr<GpuDirect>> direct =
      GpuDirect::make(cuda, place.value(), *transport.value(), {kShare, 0});
  if (!direct.ok()) return {GpuDirectTrial::Outcome::refused, direct.status().message(), {}, false};
  return {GpuDirectTrial::Outcome::works, "", direct.value()->reach(), direct.value()->pays()};
}

}  // namespace heddle::info
