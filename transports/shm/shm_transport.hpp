// Point-to-point messages over shared memory: one single-producer single-consumer byte ring per ordered pair
// of members.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/watched_process.hpp"
#include "transports/transport.hpp"

namespace heddle {

struct ShmTransportGeometry {
  int members = 1;

  // Bytes of one ring's data: a power of two, smaller where many members would make many rings.
  std::size_t ring_bytes() const;
  // Shared memory needed, from a 4096-aligned, zeroed start. Pages of pairs that never talk are never
  // touched.
  std::size_t bytes() const;
};

// Estimate of one message, the same on every rank.
inline constexpr LinearCost kShmMessageCost{500, 0.12};

// `ranks[m]` is the communicator rank of node member m, `processes[m]` its process, whose end is noticed;
// none where its number means another one here (in another PID namespace). `memory` is borrowed and outlives
// the transport. `is_gone(m)` tells of members whose processes are unknown; null: nobody can.
std::unique_ptr<Transport> make_shm_transport(std::byte* memory, const ShmTransportGeometry& geometry,
                                              int member, std::vector<int> ranks,
                                              std::vector<std::optional<WatchedProcess>> processes,
                                              std::function<bool(int member)> is_gone = nullptr);

// For who has no memory for one: the others hear that this member has left.
void leave_shm_transport(std::byte* memory, const ShmTransportGeometry& geometry, int member);

}  // namespace heddle
