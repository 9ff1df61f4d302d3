// File descriptors, which a network of sockets runs out of first.
#pragma once

#include <cstddef>

namespace heddle {

struct Descriptors {
  std::size_t open = 0;   // of this process, now
  std::size_t limit = 0;  // RLIMIT_NOFILE, the soft one
};

// Looks through /proc: milliseconds where there are thousands.
Descriptors count_descriptors();

// Whether `count` more can be opened, as far as the lowest free number tells. A microsecond.
bool has_descriptors(std::size_t count);

}  // namespace heddle
