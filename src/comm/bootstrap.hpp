// How the ranks of a new communicator find each other: an allgather, and what the caller knows of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "base/status.hpp"
#include "heddle/heddle.h"

namespace heddle {

struct Bootstrap {
  int rank = 0;
  int size = 1;
  // Collective and blocking; gathers `bytes` bytes of every rank into `all` in rank order. Used only during set-up.
  std::function<Status(const void* mine, void* all, std::size_t bytes)> allgather;
  // The lender's point-to-point messages (MPI's), when there is one.
  std::optional<heddle_p2p> p2p;
  // Ranks with equal values share memory, as far as the lender knows (MPI_COMM_TYPE_SHARED). Without one, ranks with the
  // same host name and boot identity do.
  std::optional<std::uint64_t> node;
};

// RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT over TCP. The returned value owns its sockets (shared by the function).
Result<Bootstrap> bootstrap_from_env(std::chrono::milliseconds timeout);

}  // namespace heddle
