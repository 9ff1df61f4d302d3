// What connections take: file descriptors, which a network of sockets runs out of first, and devices.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <string>

namespace heddle {

struct Descriptors {
  std::size_t open = 0;   // of this process, now
  std::size_t limit = 0;  // RLIMIT_NOFILE, the soft one
};

// Looks through /proc: milliseconds where there are thousands.
Descriptors count_descriptors();

// Whether `count` more can be opened, as far as the lowest free number tells. A microsecond.
bool has_descriptors(std::size_t count);

// The devices that an endpoint uses, "tcp/eth0"; "" where UCX does not tell.
std::string lanes_of(ucp_ep_h endpoint);

}  // namespace heddle
