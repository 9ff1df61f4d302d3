#include "gpu/pinned_pool.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>

#include "base/round_up.hpp"
#include "gpu/contexts.hpp"

namespace heddle::gpu {
namespace {

constexpr std::size_t kLeast = std::size_t{64} << 10;
constexpr std::size_t kWhole = std::size_t{2} << 20;

// Few sizes, so that pieces serve again: powers of two, and from 2 MiB on multiples of that.
std::size_t rounded(std::size_t bytes) {
  if (bytes <= kLeast) return kLeast;
  return bytes < kWhole ? std::bit_ceil(bytes) : round_up(bytes, kWhole);
}

}  // namespace

PinnedPool::~PinnedPool() {
  for (const Block& block : blocks_)
    destroy(block);
}

// Memory whose registration CUDA does not take back stays mapped: the address must not be somebody else's
// while CUDA takes it for pinned. A forked process has neither CUDA nor this memory.
void PinnedPool::destroy(const Block& block) {
  held_ -= block.bytes;
  const Current current(driver_, block.context);
  if (current.error() == CUDA_ERROR_NOT_INITIALIZED) return;
  const Aside aside(driver_);
  const CUresult error = current.error() != CUDA_SUCCESS ? CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED
                                                         : driver_.MemHostUnregister(block.memory);
  if (error == CUDA_SUCCESS || error == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)
    munmap(block.memory, block.bytes);
}

void PinnedPool::set_most(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  most_bytes_ = bytes;
}

// Frees pieces that nobody uses, the smallest first, until there is room for one of `bytes`.
bool PinnedPool::make_room(std::size_t bytes) {
  std::sort(blocks_.begin(), blocks_.end(), [](const Block& a, const Block& b) { return a.bytes < b.bytes; });
  for (auto block = blocks_.begin(); block != blocks_.end() && held_ + bytes > most_bytes_;) {
    if (block->used) {
      ++block;
      continue;
    }
    destroy(*block);
    block = blocks_.erase(block);
  }
  return held_ + bytes <= most_bytes_;
}

// What was registered before the context was reset: the driver takes it for any memory by now, and may read
// it before its time.
void PinnedPool::drop_lost(CUcontext context, std::uint64_t instance) {
  for (auto block = blocks_.begin(); block != blocks_.end();) {
    if (block->used || block->context != context || block->instance == instance) {
      ++block;
      continue;
    }
    destroy(*block);
    block = blocks_.erase(block);
  }
}

PinnedPool::Piece PinnedPool::take(std::size_t bytes, CUcontext context) {
  const std::lock_guard lock(mutex_);
  if (bytes > most_bytes_) return {};
  const std::size_t wanted = std::min(rounded(bytes), most_bytes_);
  const std::uint64_t instance = instance_of(driver_, context);
  drop_lost(context, instance);
  Block* best = nullptr;
  for (Block& block : blocks_) {
    const bool fits = !block.used && block.context == context && block.bytes >= bytes;
    if (fits && (best == nullptr || block.bytes < best->bytes)) best = &block;
  }
  if (best == nullptr) {
    if (!make_room(wanted)) return {};
    void* memory = mmap(nullptr, wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return {};
    // Where a forked process had it too, the next who writes there would get other pages than those that the
    // GPU knows.
    madvise(memory, wanted, MADV_DONTFORK);
    const Aside aside(driver_);
    if (driver_.MemHostRegister(memory, wanted, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP) !=
        CUDA_SUCCESS) {
      munmap(memory, wanted);
      return {};
    }
    best = &blocks_.emplace_back(Block{memory, wanted, context, instance, false});
    held_ += wanted;
  }
  best->used = true;
  return {this, best->memory};
}

void PinnedPool::give_back(void* memory) {
  const std::lock_guard lock(mutex_);
  for (Block& block : blocks_) {
    if (block.memory == memory) block.used = false;
  }
}

}  // namespace heddle::gpu
