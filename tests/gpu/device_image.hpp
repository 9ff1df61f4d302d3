// What the checks of kernels lay out in a device's memory, with margins: an image of all of it before and
// after shows that nothing changes but the results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <vector>

#include "cuda_memory.hpp"

namespace heddle::test {

inline constexpr std::size_t kMargin = 64;
inline constexpr std::uint8_t kMark = 0xA5;

inline std::size_t rounded(std::size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

// Behind each other, with margins.
class Layout {
 public:
  std::size_t take(std::size_t bytes) {
    const std::size_t at = rounded(end_) + kMargin;
    end_ = at + bytes + kMargin;
    return at;
  }
  std::size_t end() const { return end_; }

 private:
  std::size_t end_ = 0;
};

class DeviceImage {
 public:
  using Bytes = std::vector<std::uint8_t>;

  // `cuda` outlives it.
  explicit DeviceImage(const TestDriver& cuda) : cuda_(cuda) {}

  // Where at() leads stays until a longer one comes.
  void put(const Bytes& image) {
    if (image.size() > bytes_) {
      memory_ = nullptr;
      memory_ = std::make_unique<TestMemory>(cuda_, Memory::device, image.size());
      bytes_ = image.size();
    }
    memory_->put(image.data(), image.size());
  }
  Bytes get(std::size_t bytes) const {
    Bytes image(bytes);
    memory_->get(image.data(), bytes);
    return image;
  }
  char* at(std::size_t place) const { return memory_->as<char>() + place; }

 private:
  const TestDriver& cuda_;
  std::unique_ptr<TestMemory> memory_;
  std::size_t bytes_ = 0;
};

// Of one kind of cases; its argument again.
inline bool say(const char* what, bool right) {
  std::printf("  %-28s %s\n", what, right ? "as the host's" : "WRONG");
  return right;
}

}  // namespace heddle::test
