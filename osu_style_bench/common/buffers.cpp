#include "common/buffers.hpp"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <new>
#include <string>

namespace heddle::bench {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kMostBuffers = 64;

// Buffers one line apart from each other at least: neighbours do not share lines, and large ones that are a
// power of two long do not all start in the same set of a cache.
std::size_t stride_of(std::size_t bytes) {
  return (bytes + kLine - 1) / kLine * kLine + kLine;
}

template <typename T>
void fill(std::byte* memory, std::size_t bytes) {
  T* values = reinterpret_cast<T*>(memory);
  std::fill(values, values + bytes / sizeof(T), T{1});
}

}  // namespace

BufferPool::BufferPool(std::size_t limit, std::size_t largest, Dtype dtype, const Source& source) {
  const std::size_t stride = stride_of(largest);
  const std::size_t wanted = std::clamp(limit / stride, std::size_t{2}, kMostBuffers) * stride;
  capacity_ = (wanted + 4095) / 4096 * 4096;
  if (source) memory_ = static_cast<std::byte*>(source(capacity_));
  if (memory_ == nullptr) {
    own_.reset(static_cast<std::byte*>(std::aligned_alloc(4096, capacity_)));
    memory_ = own_.get();
  }
  if (memory_ == nullptr) throw std::bad_alloc();
  switch (dtype) {
    case Dtype::int8:
      fill<std::int8_t>(memory_, capacity_);
      break;
    case Dtype::int32:
      fill<std::int32_t>(memory_, capacity_);
      break;
    case Dtype::float32:
      fill<float>(memory_, capacity_);
      break;
    case Dtype::float64:
      fill<double>(memory_, capacity_);
      break;
  }
  cut(largest, false);
}

void BufferPool::cut(std::size_t bytes, bool warm) {
  stride_ = stride_of(bytes);
  count_ = warm ? 1 : std::clamp(capacity_ / stride_, std::size_t{2}, kMostBuffers);
  at_ = 0;
}

std::size_t affordable_memory(std::size_t wanted, int ranks) {
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::size_t kib = 0;
  std::string unit;
  while (file >> key >> kib) {
    std::getline(file, unit);
    if (key == "MemAvailable:")
      return std::min(wanted, kib * 1024 / 2 / static_cast<std::size_t>(std::max(ranks, 1)));
  }
  return wanted;
}

}  // namespace heddle::bench
