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
  std::int32_t processors = 0;  // hardware threads of the system, whoever may use them
  std::int32_t launched = 0;    // ranks of the job on this node, as its launcher says; 0: it does not
};

// The calling thread's. Two system calls, some small files, and of the environment MPI_LOCALNRANKS (Hydra),
// OMPI_COMM_WORLD_LOCAL_SIZE (Open MPI) and LOCAL_WORLD_SIZE (torchrun), the first that is set.
CoreClaim core_claim();
// The same, with what cgroup_quota_cores() gave.
CoreClaim core_claim(int quota);

// Cores that the claims cover together: the union of the masks, within the tightest quota.
int cores_of(const std::vector<CoreClaim>& claims);

// True when each claim can have a core of its own. Judges the union, ranks bound to the very same cores, and
// whether the job has more ranks here than there are cores: those that are not among the claims run
// somewhere, too.
bool each_has_a_core(const std::vector<CoreClaim>& claims);

}  // namespace heddle
