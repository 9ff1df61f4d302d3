// What the machine under this process is made of.
#pragma once

#include <cstddef>
#include <string>

#include "base/status.hpp"

namespace heddle {

struct Hardware {
  std::string host_name;
  std::string processor;
  int usable_cores = 0;  // as usable_cores()
  int hardware_threads = 0;
  int cores = 0;  // physical
  int packages = 0;
  int numa_nodes = 0;
  std::size_t l2_bytes = 0;  // of one core; 0: unknown
  std::size_t l3_bytes = 0;  // of one cache
  int l3_caches = 0;
  std::size_t memory_bytes = 0;
};

// Asks hwloc, which takes tens of milliseconds: for tools, never at the start of a job.
Result<Hardware> discover_hardware();

// Two or three lines for people.
std::string describe(const Hardware& hardware);

}  // namespace heddle
