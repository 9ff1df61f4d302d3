// What the machine under this process is made of.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/status.hpp"

namespace heddle {

// Cores this process can keep busy: the smaller of its affinity mask and its cgroup's CPU quota, at least 1.
// Cheap: two system calls and one or two small files.
int usable_cores();

// That the calling thread has had a core.
double thread_core_seconds();

// The tightest CPU quota from this process's cgroup up to the root (version 1 or 2), in cores, rounded up; 0: none.
int cgroup_quota_cores();

// The quota in a cgroup's cpu.max, or what is the same in version 1 ("200000 100000": 2 cores, rounded up); 0 when
// there is none or the text is not one.
int cores_of_quota(std::string_view cpu_max);

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
