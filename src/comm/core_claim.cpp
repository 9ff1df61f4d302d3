#include "comm/core_claim.hpp"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "comm/usable_cores.hpp"

namespace heddle {
namespace {

int bits(const std::uint64_t (&mask)[16]) {
  int n = 0;
  for (const std::uint64_t word : mask)
    n += std::popcount(word);
  return n;
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
  return std::all_of(claims.begin(), claims.end(), [&](const CoreClaim& one) {
    const auto same = std::count_if(claims.begin(), claims.end(), [&](const CoreClaim& other) {
      return std::memcmp(one.mask, other.mask, sizeof one.mask) == 0;
    });
    return same <= bits(one.mask);
  });
}

}  // namespace heddle
