// Memory that ends at an inaccessible page, and starts after one.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

namespace heddle::test {

class GuardedBuffer {
 public:
  // Room for `capacity` bytes plus at least kMargin bytes that nobody may touch.
  explicit GuardedBuffer(std::size_t capacity) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    inner_ = (capacity + kMargin + page - 1) / page * page;
    mapped_ = inner_ + 2 * page;
    void* base = mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<std::uint8_t*>(base);
    first_ = base_ + page;
    if (mprotect(first_, inner_, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
  }
  ~GuardedBuffer() { munmap(base_, mapped_); }
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  // A place for `bytes` bytes that ends `gap` bytes (at most kMargin) before the inaccessible page. The bytes
  // around it are marked.
  std::uint8_t* place(std::size_t bytes, std::size_t gap) {
    data_ = first_ + inner_ - gap - bytes;
    end_ = data_ + bytes;
    before_ = static_cast<std::size_t>(data_ - first_) < kMargin ? static_cast<std::size_t>(data_ - first_)
                                                                 : kMargin;
    after_ = std::min(kMargin, static_cast<std::size_t>(first_ + inner_ - end_));
    std::memset(data_ - before_, kMark, before_);
    std::memset(end_, kMark, static_cast<std::size_t>(first_ + inner_ - end_));
    return data_;
  }

  // Right behind the inaccessible page at the front, so that a read before the start is caught.
  std::uint8_t* place_at_front(std::size_t bytes) { return place(bytes, inner_ - bytes); }

  bool surroundings_intact() const {
    for (const std::uint8_t* p = data_ - before_; p < data_; ++p)
      if (*p != kMark) return false;
    for (const std::uint8_t* p = end_; p < end_ + after_; ++p)
      if (*p != kMark) return false;
    return true;
  }

 private:
  static constexpr std::size_t kMargin = 128;
  static constexpr std::uint8_t kMark = 0xA5;

  std::size_t inner_ = 0;
  std::size_t mapped_ = 0;
  std::size_t before_ = 0;
  std::size_t after_ = 0;
  std::uint8_t* base_ = nullptr;
  std::uint8_t* first_ = nullptr;
  std::uint8_t* data_ = nullptr;
  std::uint8_t* end_ = nullptr;
};

}  // namespace heddle::test
