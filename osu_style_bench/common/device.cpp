#include "common/device.hpp"

#include <fmt/format.h>

#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace heddle::bench {

bool heddle_takes_gpu_memory(const Job& job, Place place, std::string& problem) {
  const char* setting = std::getenv("HEDDLE_CUDA");
  std::string word(setting != nullptr ? setting : "");
  for (char& c : word)
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const bool off = word == "0" || word == "off" || word == "no" || word == "false";
  if (job.all(!off)) return true;
  problem = fmt::format(
      "-d {}: with HEDDLE_CUDA=0 heddle takes every buffer for the host's; leave that variable out, or "
      "measure "
      "-d host",
      name_of(place));
  return false;
}

std::unique_ptr<Device> Device::open(const Job& job, Place place) {
  Result<std::unique_ptr<gpu::DeviceMemory>> memory = gpu::open_device_memory(job.local_rank());
  if (!memory.ok())
    std::fprintf(stderr, "%s: rank %d: -d %s: %s; -d host measures the host's memory\n",
                 program_invocation_short_name, job.rank(), name_of(place),
                 memory.status().message().c_str());
  if (!job.all(memory.ok())) return nullptr;
  const gpu::Kind kind = place == Place::managed ? gpu::Kind::managed : gpu::Kind::device;
  return std::unique_ptr<Device>(new Device(job, kind, std::move(memory).value()));
}

std::string Device::name() const {
  return fmt::format("{} memory of {}", kind_ == gpu::Kind::managed ? "managed" : "device", memory_->name());
}

void* Device::allocate(gpu::Kind kind, std::size_t bytes) {
  const Result<void*> allocated = memory_->allocate(kind, bytes);
  check(allocated.status());
  return allocated.value();
}

BufferPool::Source Device::source() {
  return {[this](std::size_t bytes) { return allocate(bytes); },
          [this](void* to, const void* from, std::size_t bytes) { put(to, from, bytes); },
          [this](void* to, const void* from, std::size_t bytes) { get(to, from, bytes); }};
}

}  // namespace heddle::bench
