// Memory of the host that GPUs reach directly, kept for the next use: to pin memory takes as long as to copy
// it, or longer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "gpu/driver.hpp"

namespace heddle::gpu {

// The memory is the process's own, registered with CUDA. So it stays where it is when the context is
// destroyed or reset in which that was done, and copies of pieces that are on loan only become slower. Any
// thread.
class PinnedPool {
 public:
  PinnedPool(const Driver& driver, std::size_t most_bytes) : driver_(driver), most_bytes_(most_bytes) {}
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;
  // No piece is in use.
  ~PinnedPool();

  // A piece on loan, or none.
  class Piece {
   public:
    Piece() = default;
    Piece(PinnedPool* pool, void* memory) : pool_(pool), memory_(memory) {}
    Piece(Piece&& other) noexcept : pool_(other.pool_), memory_(std::exchange(other.memory_, nullptr)) {}
    Piece& operator=(Piece&& other) noexcept {
      std::swap(pool_, other.pool_);
      std::swap(memory_, other.memory_);
      return *this;
    }
    ~Piece() {
      if (memory_ != nullptr) pool_->give_back(memory_);
    }
    void* memory() const { return memory_; }

   private:
    PinnedPool* pool_ = nullptr;
    void* memory_ = nullptr;
  };

  // At least `bytes` bytes; none where the bound or the system does not allow it. `context` is the current
  // one.
  Piece take(std::size_t bytes, CUcontext context);
  // Another bound, for pieces that are taken from now on.
  void set_most(std::size_t bytes);

 private:
  struct Block {
    void* memory;
    std::size_t bytes;
    CUcontext context;  // in which it was registered,
    std::uint64_t instance;
    bool used;
  };

  void give_back(void* memory);
  bool make_room(std::size_t bytes);
  void drop_lost(CUcontext context, std::uint64_t instance);
  void destroy(const Block& block);

  const Driver& driver_;
  std::size_t most_bytes_;
  std::mutex mutex_;
  std::vector<Block> blocks_;
  std::size_t held_ = 0;
};

}  // namespace heddle::gpu
