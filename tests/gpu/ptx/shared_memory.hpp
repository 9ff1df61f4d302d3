// A block's shared memory, which knows who has used each byte since the last barrier.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace heddle::test::ptx {

inline constexpr unsigned kWarp = 32;

enum class Access : std::uint8_t { read, write, atomic };

class SharedMemory {
 public:
  void begin(std::size_t bytes, unsigned threads);
  std::size_t bytes() const { return memory_.size(); }
  // What was done before by whatever thread comes before what is done now: by all of a block, or those of a
  // warp.
  void order_all() { ++epoch_; }
  void order_warp(unsigned warp) { ++warp_epochs_[warp]; }
  // Empty, or what is wrong with that use of the bytes, which are there.
  std::string use(unsigned thread, std::size_t at, std::size_t bytes, Access access);
  std::byte* at(std::size_t offset) { return memory_.data() + offset; }

 private:
  // A thread's use, at a time; 0 is before the block began.
  struct Use {
    std::uint32_t epoch = 0;
    std::uint32_t warp_epoch = 0;
    std::uint16_t thread = 0;
    bool several = false;    // threads of that warp, at that time
    bool in_others = false;  // threads of other warps too
    bool atomic = false;
  };
  struct Byte {
    bool written = false;
    Use write;
    Use read;
  };
  bool conflicts(const Use& use, unsigned thread) const;
  void note(Use& use, unsigned thread, bool atomic) const;

  std::vector<std::byte> memory_;
  std::vector<Byte> bytes_;
  std::vector<std::uint32_t> warp_epochs_;
  std::uint32_t epoch_ = 0;
};

}  // namespace heddle::test::ptx
