// The memory of a node's ranks as sparse streams use it, over this process's SharedHeap.
#pragma once

#include <cstdint>
#include <vector>

#include "sparse/node_memory.hpp"
#include "transports/shm/shared_heap.hpp"

namespace heddle {

class HeapMemory final : public NodeMemory {
 public:
  // `heap` is borrowed. `members`: ranks, all on one node.
  HeapMemory(SharedHeap& heap, int members)
      : heap_(heap),
        views_(members),
        releases_(static_cast<std::size_t>(members)),
        heard_(releases_.size()) {}

  // A collective begins: what was mapped of the others' memory may go, where they say that some of theirs
  // went.
  void begin() { releases_ = heard_; }

  std::byte* allocate(std::size_t bytes) override;
  void release(std::byte* memory) override { (void)heap_.release(memory, SharedHeap::Readers::some); }
  bool place_of(const void* data, std::size_t bytes, NodePlace* place) const override;
  const std::byte* at(int owner, const NodePlace& place) override;

 private:
  SharedHeap& heap_;
  HeapViews views_;
  // Of each rank, its count of blocks that went: that by which its views were kept so far, and as it says by
  // now.
  std::vector<std::uint64_t> releases_;
  std::vector<std::uint64_t> heard_;
};

}  // namespace heddle
