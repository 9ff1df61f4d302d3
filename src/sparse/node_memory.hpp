// Memory that the ranks of one node can reach: streams in it are handed over instead of sent.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle {

// Where something lies in its owner's memory: plain bytes, told to the other ranks.
struct NodePlace {
  std::uint64_t words[6] = {};
};

class NodeMemory {
 public:
  NodeMemory() = default;
  NodeMemory(const NodeMemory&) = delete;
  NodeMemory& operator=(const NodeMemory&) = delete;
  virtual ~NodeMemory() = default;

  // Room for `bytes` until release(); null when there is none.
  virtual std::byte* allocate(std::size_t bytes) = 0;
  virtual void release(std::byte* memory) = 0;
  // Where [data, data + bytes) lies; false where that is not inside what allocate() gave.
  virtual bool place_of(const void* data, std::size_t bytes, NodePlace* place) const = 0;
  // What rank `owner` means, in this process, for the collective that it is told in; null where it cannot be
  // mapped.
  virtual const std::byte* at(int owner, const NodePlace& place) = 0;
};

}  // namespace heddle
