#include "transports/shm/shared_heap.hpp"

#include <unistd.h>

#include <string>
#include <utility>

namespace heddle {

Result<void*> SharedHeap::allocate(std::size_t bytes) {
  // Pages are not reserved: more than there can ever be would only show when it is touched.
  const std::size_t physical =
      static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  if (bytes > physical) {
    return Status(Code::out_of_memory, std::to_string(bytes) +
                                           " bytes are more than this machine's memory (" +
                                           std::to_string(physical) + ")");
  }
  Result<SharedMemory> memory = SharedMemory::create(bytes > 0 ? bytes : 1, SharedMemory::Backing::memfd);
  if (!memory.ok()) return memory.status();
  std::byte* const start = memory->data();
  const std::lock_guard lock(mutex_);
  blocks_.emplace(start, Block{++last_number_, std::move(memory).value()});
  return static_cast<void*>(start);
}

Status SharedHeap::release(void* memory) {
  const std::lock_guard lock(mutex_);
  if (blocks_.erase(static_cast<const std::byte*>(memory)) == 0) {
    return Status(Code::invalid_argument,
                  "this memory is not from heddle_alloc on this communicator, or was freed before");
  }
  ++releases_;
  return {};
}

std::optional<HeapPlace> SharedHeap::find(const void* memory, std::size_t bytes) const {
  const auto* const start = static_cast<const std::byte*>(memory);
  const std::lock_guard lock(mutex_);
  auto after = blocks_.upper_bound(start);
  if (after == blocks_.begin()) return std::nullopt;
  const auto& [first, block] = *--after;
  const auto offset = static_cast<std::size_t>(start - first);
  if (offset > block.memory.size() || bytes > block.memory.size() - offset) return std::nullopt;
  return HeapPlace{block.number, offset, block.memory.handle()};
}

std::uint64_t SharedHeap::releases() const {
  const std::lock_guard lock(mutex_);
  return releases_;
}

std::size_t SharedHeap::blocks() const {
  const std::lock_guard lock(mutex_);
  return blocks_.size();
}

std::byte* HeapViews::at(int member, const HeapPlace& place, std::uint64_t releases) {
  Owner& owner = of_[static_cast<std::size_t>(member)];
  if (owner.releases != releases) {
    owner.blocks.clear();
    owner.releases = releases;
  }
  auto found = owner.blocks.find(place.block);
  if (found == owner.blocks.end()) {
    Result<SharedMemory> memory = SharedMemory::attach(place.handle);
    if (!memory.ok()) return nullptr;
    memory->publish_done();
    found = owner.blocks.emplace(place.block, std::move(memory).value()).first;
  }
  return found->second.data() + place.offset;
}

}  // namespace heddle
