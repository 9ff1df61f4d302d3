// Messages whose buffers lie on a GPU: the network's device writes them as from and to any registered memory,
// short ones too. Where the other end is the host's memory, which has short ones copied, that goes by way of
// the GPU's owner.
#include <cstring>

#include "transports/verbs/reach.hpp"
#include "transports/verbs/verbs_transport.hpp"

namespace heddle::verbs {

Result<DeviceReach> VerbsTransport::add_memory(const DeviceMemory& memory) {
  const Result<MemoryPinner::Pinned> pinned = device_.pin(memory);
  HEDDLE_TRY(pinned.status());
  const Result<DeviceReach> reach = measure_reach(device_, memory, pinned.value().keys);
  if (!reach.ok()) {
    device_.unpin(pinned.value().handle);
    return reach;
  }
  registrations_.add(memory.begin, memory.bytes, pinned.value());
  device_memory_.push_back(memory);
  return reach;
}

void VerbsTransport::remove_memory(const std::byte* begin) {
  registrations_.remove(begin);
  std::erase_if(device_memory_, [&](const DeviceMemory& m) { return m.begin == begin; });
}

const DeviceMemory* VerbsTransport::on_device(const std::byte* data) const {
  for (const DeviceMemory& each : device_memory_) {
    if (data >= each.begin && data < each.begin + each.bytes) return &each;
  }
  return nullptr;
}

void VerbsTransport::take_out(std::byte* to, const std::byte* from, std::size_t bytes) const {
  if (bytes == 0) return;
  if (const DeviceMemory* const there = on_device(from)) {
    there->access->read(to, from, bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
}

void VerbsTransport::put_in(std::byte* to, const std::byte* from, std::size_t bytes) const {
  if (bytes == 0) return;
  if (const DeviceMemory* const there = on_device(to)) {
    there->access->write(to, from, bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace heddle::verbs
