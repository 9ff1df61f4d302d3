#include "comm/host_identity.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <string_view>

namespace heddle {
namespace {

// FNV-1a, 64 bits: the same on every machine, which std::hash need not be.
std::uint64_t mix(std::uint64_t hash, std::string_view text) {
  for (const char c : text)
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  // A separator, so that ("ab", "c") and ("a", "bc") differ.
  return (hash ^ 0xffU) * 0x100000001b3ULL;
}

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
  std::uint64_t hash = mix(0xcbf29ce484222325ULL, identity.host_name);
  hash = mix(hash, first_line("/proc/sys/kernel/random/boot_id"));
  struct stat shm {};
  if (::stat("/dev/shm", &shm) == 0) hash = mix(hash, std::to_string(shm.st_dev));
  identity.value = hash;
  struct stat processes {};
  if (::stat("/proc/self/ns/pid", &processes) == 0) identity.pid_namespace = processes.st_ino;
  return identity;
}

}  // namespace heddle
