// Memory that the other ranks of the node can reach: collectives on it need no staging.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "base/status.hpp"
#include "transports/shm/shared_memory.hpp"

namespace heddle {

// Where a range lies in its owner's heap: plain bytes, told to the other ranks.
struct HeapPlace {
  std::uint64_t block = 0;  // numbers are never given twice
  std::uint64_t offset = 0;
  SharedMemoryHandle handle;
};

// One rank's memory for the others. Each block is a memfd of its own, with a descriptor. Any thread.
class SharedHeap {
 public:
  // Zeroed, page-aligned memory of `bytes` (at least 1), for as long as this object or until release().
  Result<void*> allocate(std::size_t bytes);
  // `memory` is what allocate() returned, and no collective that uses it is in flight on any rank.
  Status release(void* memory);

  // Where [memory, memory + bytes) lies, if inside one block.
  std::optional<HeapPlace> find(const void* memory, std::size_t bytes) const;
  // Rises when a block goes: the others then let go of what they had mapped.
  std::uint64_t releases() const;
  std::size_t blocks() const;

 private:
  struct Block {
    std::uint64_t number;
    SharedMemory memory;
  };
  mutable std::mutex mutex_;
  std::map<const std::byte*, Block> blocks_;  // by address
  std::uint64_t last_number_ = 0;
  std::uint64_t releases_ = 0;
};

// The others' blocks, mapped here when they are first met.
class HeapViews {
 public:
  explicit HeapViews(int members) : of_(static_cast<std::size_t>(members)) {}

  // The place's address in this process; null where the block cannot be mapped. `releases` is the owner's.
  std::byte* at(int member, const HeapPlace& place, std::uint64_t releases);

 private:
  struct Owner {
    std::uint64_t releases = 0;
    std::map<std::uint64_t, SharedMemory> blocks;  // by number
  };
  std::vector<Owner> of_;
};

}  // namespace heddle
