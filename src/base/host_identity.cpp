#include "base/host_identity.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <string>

#include "base/hash.hpp"

namespace heddle {
namespace {

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

HostIdentity host_identity() {
  HostIdentity identity;
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) == 0) identity.host_name = name.data();
  const std::string boot = first_line("/proc/sys/kernel/random/boot_id");
  if (!boot.empty()) identity.kernel = fnv1a(boot);
  std::string what = identity.host_name + '\n' + boot;
  struct stat shm {};
  if (::stat("/dev/shm", &shm) == 0) what += '\n' + std::to_string(shm.st_dev);
  identity.value = fnv1a(what);
  struct stat processes {};
  if (::stat("/proc/self/ns/pid", &processes) == 0) identity.pid_namespace = processes.st_ino;
  struct stat clock {};
  if (::stat("/proc/self/ns/time", &clock) == 0) identity.time_namespace = clock.st_ino;
  return identity;
}

}  // namespace heddle
