// The memory of a node's ranks as sparse streams use it, over this process's SharedHeap.
#pragma once

#include "sparse/node_memory.hpp"
#include "transports/shm/shared_heap.hpp"

namespace heddle {

class HeapMemory final : public NodeMemory {
 public:
  // `heap` is borrowed. `members`: ranks, all on one node.
  HeapMemory(SharedHeap& heap, int members) : heap_(heap), views_(members) {}

  std::byte* allocate(std::size_t bytes) override;
  void release(std::byte* memory) override { (void)heap_.release(memory); }
  bool place_of(const void* data, std::size_t bytes, NodePlace* place) const override;
  const std::byte* at(int owner, const NodePlace& place) override;

 private:
  SharedHeap& heap_;
  HeapViews views_;
};

}  // namespace heddle
