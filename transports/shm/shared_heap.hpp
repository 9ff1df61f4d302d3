// Memory that the other ranks of the node can reach: collectives on it need no staging.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
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
//
// Making one takes a hundred microseconds, pages included, so what is put by is given out again, under its
// number: the others may have mapped it already. That is bounded, and nothing is given out again that a
// process forked since may still look at.
class SharedHeap {
 public:
  // Zeroed, page-aligned memory of `bytes` (at least 1), for as long as this object or until release().
  Result<void*> allocate(std::size_t bytes);
  // `memory` is what allocate() returned, and no collective that uses it is in flight on any rank, unless it
  // has `readers`. Its pages go, whatever the others still have mapped of it: they let go of that when they
  // next look at something of this owner's, which may be never. With readers the pages go then.
  enum class Readers : bool { none, some };
  Status release(void* memory, Readers readers = Readers::none);

  // The same, of any contents: of what was put by, where there is a block of that size. A failure where there
  // would be more than `most_blocks`.
  Result<void*> allocate_again(std::size_t bytes, std::size_t most_blocks);
  // As release(), for allocate_again(): keeps it, or others in its place, up to kMostKept bytes. False where
  // it is no block's beginning.
  bool put_by(void* memory);
  static constexpr std::size_t kMostKept = std::size_t{64} << 20;

  // Where [memory, memory + bytes) lies, if inside one block.
  std::optional<HeapPlace> find(const void* memory, std::size_t bytes) const;
  // Rises when a block goes: the others then let go of what they had mapped.
  std::uint64_t releases() const;
  std::size_t blocks() const;  // besides those put by
  std::size_t kept() const;    // put by

 private:
  // Has children that are forked get the memory as a copy of their own, like all other memory: what they
  // write there stays theirs.
  struct InChildren;
  struct EndInChildren {
    void operator()(InChildren* block) const;
  };
  using ForChildren = std::unique_ptr<InChildren, EndInChildren>;
  static ForChildren for_children(const SharedMemory& memory);
  static void copy_in_child();
  static std::uint64_t forks_so_far();

  struct Block {
    std::uint64_t number;
    SharedMemory memory;
    std::uint64_t forks;  // before it was made
    ForChildren for_children;
  };
  // Blocks that go, when there is no lock.
  struct Gone {
    std::vector<Block> blocks;
    Gone() = default;
    Gone(const Gone&) = delete;
    Gone& operator=(const Gone&) = delete;
    ~Gone();
  };
  // Takes the oldest of kept_.
  void evict(Gone& gone);

  mutable std::mutex mutex_;
  std::map<const std::byte*, Block> blocks_;  // by address
  std::vector<Block> kept_;                   // the oldest first
  std::size_t kept_bytes_ = 0;
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
