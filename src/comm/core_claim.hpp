// Which cores the ranks of a node may run on, taken together: whether a rank can spin without keeping a peer
// off its core.
#pragma once

#include <cstdint>
#include <vector>

namespace heddle {

// Plain bytes, to be sent to the other ranks.
struct CoreClaim {
  std::uint64_t mask[16] = {};  // hardware threads 0 to 1023 of the caller's affinity mask
  std::int32_t quota = 0;       // cores the cgroup grants; 0: no limit
};

// The calling thread's. Two system calls and one or two small files.
CoreClaim core_claim();
// The same, with what cgroup_quota_cores() gave.
CoreClaim core_claim(int quota);

// Cores that the claims cover together: the union of the masks, within the tightest quota.
int cores_of(const std::vector<CoreClaim>& claims);

// True when each claim can have a core of its own. Judges the union, and ranks bound to the very same cores.
bool each_has_a_core(const std::vector<CoreClaim>& claims);

}  // namespace heddle
