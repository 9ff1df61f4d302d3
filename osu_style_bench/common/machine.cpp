#include "common/machine.hpp"

#include <sched.h>
#include <sys/utsname.h>

#include <fstream>

namespace heddle::bench {
namespace {

// Of the first line "NAME: VALUE" in one of the kernel's files; empty where there is none.
std::string value_in(const char* path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (line.rfind(name, 0) != 0 || colon == std::string::npos) continue;
    const std::size_t value = line.find_first_not_of(" \t", colon + 1);
    return value == std::string::npos ? "" : line.substr(value);
  }
  return "";
}

}  // namespace

Machine this_machine() {
  Machine machine;
  utsname names{};
  if (uname(&names) == 0) {
    machine.host = names.nodename;
    machine.kernel = std::string(names.sysname) + " " + names.release;
  }
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) == 0) machine.cores = CPU_COUNT(&cores);
  machine.cpu = value_in("/proc/cpuinfo", "model name");
  machine.core_list = value_in("/proc/self/status", "Cpus_allowed_list");
  return machine;
}

}  // namespace heddle::bench
