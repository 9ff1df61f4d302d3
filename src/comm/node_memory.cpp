#include "comm/node_memory.hpp"

#include "base/descriptors.hpp"

namespace heddle {
namespace {

// No block is longer. The bits above it have the last ones of how many blocks went.
constexpr int kOffsetBits = 48;

}  // namespace

std::byte* HeapMemory::allocate(std::size_t bytes) {
  // Each is a descriptor of this process's for good, and one of the others' for a moment.
  constexpr std::size_t kLeft = 128;
  if (!has_descriptors(kLeft)) return nullptr;
  const Result<void*> memory = heap_.allocate(bytes);
  return memory.ok() ? static_cast<std::byte*>(memory.value()) : nullptr;
}

bool HeapMemory::place_of(const void* data, std::size_t bytes, NodePlace* place) const {
  const std::optional<HeapPlace> found = heap_.find(data, bytes);
  if (!found) return false;
  const SharedMemoryHandle& handle = found->handle;
  place->words[0] = found->block;
  place->words[1] = found->offset | heap_.releases() << kOffsetBits;
  place->words[2] =
      std::uint64_t{static_cast<std::uint32_t>(handle.pid)} << 32 | static_cast<std::uint32_t>(handle.fd);
  place->words[3] = handle.bytes;
  place->words[4] = handle.device;
  place->words[5] = handle.inode;
  return true;
}

// Numbers of blocks are never given twice, so that nothing needs to be unmapped at once when its owner gives
// it back; and may not be, where an owner gives back in the middle of a collective what it has something
// larger for, and others still look at it.
const std::byte* HeapMemory::at(int owner, const NodePlace& place) {
  HeapPlace found;
  found.block = place.words[0];
  found.offset = place.words[1] & ((std::uint64_t{1} << kOffsetBits) - 1);
  found.handle.pid = static_cast<std::int32_t>(place.words[2] >> 32);
  found.handle.fd = static_cast<std::int32_t>(place.words[2]);
  found.handle.bytes = place.words[3];
  found.handle.device = place.words[4];
  found.handle.inode = place.words[5];
  const auto o = static_cast<std::size_t>(owner);
  heard_[o] = place.words[1] >> kOffsetBits;
  return views_.at(owner, found, releases_[o]);
}

}  // namespace heddle
