#include "setup/usable_cores.hpp"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

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

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  std::getline(file, text);
  return text;
}

// In a cgroup's folder, as "QUOTA PERIOD": one file in version 2, two in version 1.
std::string quota_in(const std::string& folder) {
  const std::string both = first_line(folder + "/cpu.max");
  if (!both.empty()) return both;
  return first_line(folder + "/cpu.cfs_quota_us") + ' ' + first_line(folder + "/cpu.cfs_period_us");
}

// The tightest quota from `group` up to `root`; 0: none.
int tightest(const std::string& root, std::string group) {
  int least = 0;
  for (;;) {
    const int cores = cores_of_quota(quota_in(root + group));
    if (cores > 0 && (least == 0 || cores < least)) least = cores;
    if (group.empty()) return least;
    group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
  }
}

}  // namespace

int cgroup_quota_cores() {
  int least = 0;
  std::ifstream self("/proc/self/cgroup");
  // "0::/group" is version 2; "1:cpu,cpuacct:/group" version 1, mounted under the names of its controllers.
  for (std::string line; std::getline(self, line);) {
    const std::size_t names = line.find(':') + 1;
    const std::size_t path = line.find(':', names);
    if (names == 0 || path == std::string::npos) continue;
    const std::string controllers = line.substr(names, path - names);
    const bool has_cpu = (',' + controllers + ',').find(",cpu,") != std::string::npos;
    if (!controllers.empty() && !has_cpu) continue;
    const int cores = tightest("/sys/fs/cgroup/" + controllers, line.substr(path + 1));
    if (cores > 0 && (least == 0 || cores < least)) least = cores;
  }
  return least;
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

double thread_core_seconds() {
  timespec had{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &had);
  return static_cast<double>(had.tv_sec) + 1e-9 * static_cast<double>(had.tv_nsec);
}

// "ON-CORE WAITING-FOR-ONE SLICES", in nanoseconds.
double thread_queued_seconds() {
  std::ifstream file("/proc/thread-self/schedstat");
  double had = 0;
  double queued = 0;
  return file >> had >> queued ? 1e-9 * queued : 0;
}

int usable_cores() {
  const int mask = std::max(cores_in_affinity_mask(), 1);
  const int quota = cgroup_quota_cores();
  return quota > 0 ? std::min(mask, quota) : mask;
}

}  // namespace heddle
