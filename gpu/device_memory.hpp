// Memory of one GPU, for programs that load CUDA for nothing else: the benchmarks.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/status.hpp"
#include "gpu/gpu.hpp"

namespace heddle::gpu {

// One thread at a time. Its context is current in the thread that opened it until the end of the process, and
// so is CUDA's driver, which is found at run time (libcuda.so.1).
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  // Frees what was allocated, which nobody uses any more.
  virtual ~DeviceMemory() = default;

  // "GPU 0, NVIDIA H200".
  virtual std::string name() const = 0;
  // `bytes` bytes of Kind::device, Kind::managed, or Kind::pinned.
  virtual Result<void*> allocate(Kind kind, std::size_t bytes) = 0;
  // Of allocate(), before the end; nobody uses it any more.
  virtual void release(void* memory) = 0;
  // Copies between the host's memory and a GPU's, complete on return; after all work on the default stream.
  virtual Status put(void* to, const void* from, std::size_t bytes) = 0;
  virtual Status get(void* to, const void* from, std::size_t bytes) = 0;
};

// Of GPU `number` modulo as many as there are. `unsupported` says what there is none of: driver, GPU, or CUDA
// in this build.
Result<std::unique_ptr<DeviceMemory>> open_device_memory(int number);

}  // namespace heddle::gpu
