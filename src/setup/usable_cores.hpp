// The cores that this process may use.
#pragma once

#include <string_view>

namespace heddle {

// Cores this process can keep busy: the smaller of its affinity mask and its cgroup's CPU quota, at least 1.
// Cheap: two system calls and one or two small files.
int usable_cores();

// That the calling thread has had a core.
double thread_core_seconds();
// That it has waited for one that others had; 0 where the kernel does not tell.
double thread_queued_seconds();

// The tightest CPU quota from this process's cgroup up to the root (version 1 or 2), in cores, rounded up; 0:
// none.
int cgroup_quota_cores();

// The quota in a cgroup's cpu.max, or what is the same in version 1 ("200000 100000": 2 cores, rounded up); 0
// when there is none or the text is not one.
int cores_of_quota(std::string_view cpu_max);

}  // namespace heddle
