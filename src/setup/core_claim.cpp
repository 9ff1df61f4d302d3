#include "setup/core_claim.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "setup/usable_cores.hpp"

namespace heddle {
namespace {

int bits(const std::uint64_t (&mask)[16]) {
  int n = 0;
  for (const std::uint64_t word : mask)
    n += std::popcount(word);
  return n;
}

int launched_here() {
  for (const char* name : {"MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "LOCAL_WORLD_SIZE"}) {
    const char* const value = std::getenv(name);
    if (value == nullptr) continue;
    const std::string_view text = value;
    int ranks = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ranks);
    return error == std::errc() && end == text.data() + text.size() ? std::max(ranks, 0) : 0;
  }
  return 0;
}

// The job's ranks want more cores than the node, or the cgroup, has.
bool is_crowded(const CoreClaim& claim) {
  const int cores = claim.quota > 0 ? std::min(claim.quota, claim.processors) : claim.processors;
  return claim.launched > cores && cores > 0;
}

}  // namespace

CoreClaim core_claim() {
  return core_claim(cgroup_quota_cores());
}

CoreClaim core_claim(int quota) {
  CoreClaim claim;
  cpu_set_t set;
  CPU_ZERO(&set);
  static_assert(sizeof set == sizeof claim.mask);
  // A machine with more than 1024 hardware threads refuses the short mask: then nothing is known, and all
  // claim all.
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    std::memcpy(claim.mask, &set, sizeof set);
  } else {
    std::fill(std::begin(claim.mask), std::end(claim.mask), ~std::uint64_t{0});
  }
  claim.quota = quota;
  // A file, which each communicator would read again.
  static const auto processors = static_cast<std::int32_t>(std::max(sysconf(_SC_NPROCESSORS_ONLN), 0L));
  claim.processors = processors;
  claim.launched = launched_here();
  return claim;
}

int cores_of(const std::vector<CoreClaim>& claims) {
  std::uint64_t all[16] = {};
  int quota = 0;
  for (const CoreClaim& claim : claims) {
    for (int i = 0; i < 16; ++i)
      all[i] |= claim.mask[i];
    if (claim.quota > 0) quota = quota == 0 ? claim.quota : std::min(quota, claim.quota);
  }
  const int cores = bits(all);
  return quota > 0 ? std::min(cores, quota) : cores;
}

bool each_has_a_core(const std::vector<CoreClaim>& claims) {
  if (static_cast<int>(claims.size()) > cores_of(claims)) return false;
  if (std::any_of(claims.begin(), claims.end(), is_crowded)) return false;
  return std::all_of(claims.begin(), claims.end(), [&](const CoreClaim& one) {
    const auto same = std::count_if(claims.begin(), claims.end(), [&](const CoreClaim& other) {
      return std::memcmp(one.mask, other.mask, sizeof one.mask) == 0;
    });
    return same <= bits(one.mask);
  });
}

}  // namespace heddle
