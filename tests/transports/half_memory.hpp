// A buffer that a system call cannot go through.
#pragma once

#include <sys/mman.h>

#include <cstddef>

namespace heddle::tcp {

// Memory of which what is behind the first part cannot be used.
class HalfMemory {
 public:
  static constexpr std::size_t kBytes = 200'000;
  static constexpr std::size_t kUsable = std::size_t{64} << 10;

  HalfMemory()
      : begin_(static_cast<char*>(
            ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    (void)::mprotect(begin_ + kUsable, kBytes - kUsable, PROT_NONE);
  }
  HalfMemory(const HalfMemory&) = delete;
  HalfMemory& operator=(const HalfMemory&) = delete;
  ~HalfMemory() { ::munmap(begin_, kBytes); }
  char* data() const { return begin_; }

 private:
  char* begin_;
};

}  // namespace heddle::tcp
