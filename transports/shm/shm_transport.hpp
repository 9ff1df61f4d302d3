// Point-to-point messages over shared memory: one single-producer single-consumer byte ring per ordered pair
// of members.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

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

// In place of a process whose number means another one here, or none: in another PID namespace.
inline constexpr int kUnknownProcess = 0;

// `ranks[m]` is the communicator rank of node member m, `pids[m]` its process, which runs, and whose end is noticed. `memory`
// is borrowed and outlives the transport. `is_gone(m)` tells of members whose processes are unknown; null: nobody can.
std::unique_ptr<Transport> make_shm_transport(std::byte* memory, const ShmTransportGeometry& geometry,
                                              int member, std::vector<int> ranks,
                                              const std::vector<int>& pids,
                                              std::function<bool(int member)> is_gone = nullptr);

}  // namespace heddle
