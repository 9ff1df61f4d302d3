// Buffers on a GPU (-d): one GPU for each rank, and copies to and from it outside of what is timed.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "common/buffers.hpp"
#include "common/job.hpp"
#include "common/options.hpp"
#include "gpu/device_memory.hpp"

namespace heddle::bench {

// Whether heddle, on all ranks, takes GPU memory for what it is: HEDDLE_CUDA=0 has it read all memory as the
// host's. Collective; the sentence that says so is in `problem`.
bool heddle_takes_gpu_memory(const Job& job, Place place, std::string& problem);

// What fails here ends the job. One thread at a time.
class Device {
 public:
  // Of the GPU whose number is the rank's on its machine, modulo as many as there are. Collective; null on
  // all ranks where one has none, which says why.
  static std::unique_ptr<Device> open(const Job& job, Place place);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // "managed memory of GPU 0, NVIDIA H200".
  std::string name() const;
  void* allocate(std::size_t bytes) { return allocate(kind_, bytes); }
  void* allocate_pinned(std::size_t bytes) { return allocate(gpu::Kind::pinned, bytes); }
  void release(void* memory) { memory_->release(memory); }
  void put(void* to, const void* from, std::size_t bytes) { check(memory_->put(to, from, bytes)); }
  void get(void* to, const void* from, std::size_t bytes) { check(memory_->get(to, from, bytes)); }
  // For pools of buffers; this outlives them.
  BufferPool::Source source();

 private:
  Device(const Job& job, gpu::Kind kind, std::unique_ptr<gpu::DeviceMemory> memory)
      : job_(job), kind_(kind), memory_(std::move(memory)) {}
  void* allocate(gpu::Kind kind, std::size_t bytes);
  void check(const Status& status) const {
    if (!status.ok()) job_.abort(status.message());
  }

  const Job& job_;
  gpu::Kind kind_;
  std::unique_ptr<gpu::DeviceMemory> memory_;
};

}  // namespace heddle::bench
