// How fast a network's device reads and writes a GPU's memory, found by doing it: it writes to itself, over a
// connection of its own, so that what fails does no harm to anybody's messages. A device may be able to do
// one and not the other: not all processors let reads from one PCIe device by another one through, or as
// fast.
#pragma once

#include "base/status.hpp"
#include "transports/transport.hpp"
#include "transports/verbs/device.hpp"

namespace heddle::verbs {

// Overwrites the beginning of `memory`, at least a page, which `keys` make known to the device. Takes some
// milliseconds, or what a few megabytes take it. `unsupported`: an access failed, or what arrived was not
// what was sent.
Result<DeviceReach> measure_reach(Device& device, const DeviceMemory& memory, const MemoryKeys& keys);

}  // namespace heddle::verbs
