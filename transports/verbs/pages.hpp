// Memory of this process's own that a device works in for long.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <utility>

namespace heddle::verbs {

// Whole pages, which a forked process does not get: where it had them too, the next who writes there would
// get other pages than those that the device knows (Linux before 5.12).
class Pages {
 public:
  Pages() = default;
  // Zeroed. Null where there is no memory.
  explicit Pages(std::size_t bytes) {
    void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return;
    madvise(memory, bytes, MADV_DONTFORK);
    data_ = static_cast<std::byte*>(memory);
    size_ = bytes;
  }
  Pages(Pages&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Pages& operator=(Pages&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Pages() {
    if (data_ != nullptr) munmap(data_, size_);
  }

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace heddle::verbs
