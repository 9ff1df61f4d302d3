#include "common/buffers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <new>
#include <string>
#include <utility>

#include "base/round_up.hpp"

namespace heddle::bench {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kPage = 4096;

// Buffers one line apart from each other at least: neighbours do not share lines, and large ones that are a
// power of two long do not all start in the same set of a cache.
std::size_t stride_of(std::size_t bytes) {
  return round_up(bytes, kLine) + kLine;
}

template <typename T>
void fill(std::byte* memory, std::size_t bytes) {
  T* values = reinterpret_cast<T*>(memory);
  std::fill(values, values + bytes / sizeof(T), T{1});
}

void fill(Dtype dtype, std::byte* memory, std::size_t bytes) {
  switch (dtype) {
    case Dtype::int8:
      return fill<std::int8_t>(memory, bytes);
    case Dtype::int32:
      return fill<std::int32_t>(memory, bytes);
    case Dtype::float32:
      return fill<float>(memory, bytes);
    case Dtype::float64:
      return fill<double>(memory, bytes);
  }
}

}  // namespace

std::size_t BufferPool::count_in(std::size_t memory, std::size_t bytes, std::size_t most) {
  const std::size_t fit = std::clamp(memory / stride_of(bytes), kLeastBuffers, most);
  // Odd: else a root that moves with each call would meet the same few buffers again and again.
  return fit > kLeastBuffers && fit % 2 == 0 ? fit - 1 : fit;
}

std::size_t BufferPool::size(std::size_t limit, std::size_t largest, std::size_t most) {
  // Whole pages that end within the limit.
  return round_up(count_in(limit / kPage * kPage, largest, most) * stride_of(largest), kPage);
}

BufferPool::BufferPool(std::size_t limit, std::size_t largest, Dtype dtype, Source source, std::size_t most)
    : source_(std::move(source)), most_(most), capacity_(size(limit, largest, most)) {
  if (source_.allocate) memory_ = static_cast<std::byte*>(source_.allocate(capacity_));
  if (memory_ == nullptr) {
    own_.reset(static_cast<std::byte*>(std::aligned_alloc(kPage, capacity_)));
    memory_ = own_.get();
  }
  if (memory_ == nullptr) throw std::bad_alloc();
  if (source_.put) {
    const std::unique_ptr<std::byte, Free> ones(
        static_cast<std::byte*>(std::aligned_alloc(kPage, capacity_)));
    if (ones == nullptr) throw std::bad_alloc();
    fill(dtype, ones.get(), capacity_);
    put(memory_, ones.get(), capacity_);
  } else {
    fill(dtype, memory_, capacity_);
  }
  cut(largest, false);
}

void BufferPool::put(void* buffer, const void* from, std::size_t bytes) const {
  if (source_.put) return source_.put(buffer, from, bytes);
  std::memcpy(buffer, from, bytes);
}

void BufferPool::get(void* to, const void* buffer, std::size_t bytes) const {
  if (source_.get) return source_.get(to, buffer, bytes);
  std::memcpy(to, buffer, bytes);
}

void BufferPool::cut(std::size_t bytes, bool warm) {
  stride_ = stride_of(bytes);
  count_ = warm ? 1 : count_in(capacity_, bytes, most_);
  at_ = 0;
}

MemoryShares share_memory(const Options& options, std::size_t memory, int ranks) {
  const std::size_t send = options.send_bytes(options.max_bytes, ranks);
  const std::size_t receive = options.receive_bytes(options.max_bytes, ranks);
  if (receive == 0) return {memory, 0};
  const std::size_t times = receive / send;
  const std::size_t part = memory / (1 + times);
  // Two short buffers take whole pages, which may be more than their part.
  const std::size_t taken = BufferPool::size(part, send, options.most_buffers);
  return {part, std::min(part * times, memory - taken)};
}

std::size_t pooled_memory(const Options& options, std::size_t memory, int ranks) {
  const MemoryShares shares = share_memory(options, memory, ranks);
  const std::size_t sent =
      BufferPool::size(shares.send, options.send_bytes(options.max_bytes, ranks), options.most_buffers);
  if (options.pools() == 1) return sent;
  return sent + BufferPool::size(shares.receive, options.receive_bytes(options.max_bytes, ranks),
                                 options.most_buffers);
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

std::size_t affordable_memory(const Job& job, std::size_t wanted) {
  const auto mine = static_cast<double>(affordable_memory(wanted, job.size()));
  return static_cast<std::size_t>(-job.maximum(-mine));
}

std::string size_text(std::size_t bytes) {
  constexpr std::size_t kKilo = 1024;
  if (bytes < kKilo) return fmt::format("{}", bytes);
  if (bytes < kKilo * kKilo) return fmt::format("{}K", div_up(bytes, kKilo));
  return fmt::format("{}M", div_up(bytes, kKilo * kKilo));
}

}  // namespace heddle::bench
