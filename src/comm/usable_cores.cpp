// usable_cores() apart from hwloc, so that the preload library has the one without the other.
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "comm/hardware.hpp"

namespace heddle {
namespace {

int cores_in_affinity_mask() {
  // The mask may be longer than cpu_set_t on big machines: EINVAL asks for a longer one.
  for (int cpus = CPU_SETSIZE; cpus <= 1 << 20; cpus *= 2) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(cpus),
                                                               [](cpu_set_t* s) { CPU_FREE(s); });
    if (set == nullptr) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(cpus);
    if (::sched_getaffinity(0, bytes, set.get()) == 0) return CPU_COUNT_S(bytes, set.get());
    if (errno != EINVAL) break;
  }
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

int cgroup_quota_cores() {
  std::string group;
  std::ifstream self("/proc/self/cgroup");
  for (std::string line; std::getline(self, line);) {
    if (line.rfind("0::/", 0) == 0) group = line.substr(3);
  }
  int least = 0;
  for (;;) {
    std::ifstream file("/sys/fs/cgroup" + group + "/cpu.max");
    std::string text;
    if (file && std::getline(file, text)) {
      const int cores = cores_of_quota(text);
      if (cores > 0 && (least == 0 || cores < least)) least = cores;
    }
    if (group.empty()) return least;
    group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
  }
}

int cores_of_quota(std::string_view cpu_max) {
  const std::size_t space = cpu_max.find(' ');
  if (space == std::string_view::npos) return 0;
  long long quota = 0;
  long long period = 0;
  const std::string_view first = cpu_max.substr(0, space);
  const std::string_view second = cpu_max.substr(space + 1);
  if (std::from_chars(first.data(), first.data() + first.size(), quota).ec != std::errc() ||
      std::from_chars(second.data(), second.data() + second.size(), period).ec != std::errc() || quota <= 0 ||
      period <= 0) {
    return 0;  // "max": no quota
  }
  const long long cores = quota / period + (quota % period != 0 ? 1 : 0);
  return static_cast<int>(std::min<long long>(cores, 1 << 20));
}

int usable_cores() {
  const int mask = std::max(cores_in_affinity_mask(), 1);
  const int quota = cgroup_quota_cores();
  return quota > 0 ? std::min(mask, quota) : mask;
}

}  // namespace heddle
