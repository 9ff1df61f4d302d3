// Which machine this is, so that ranks can tell with whom they share it.
#pragma once

#include <cstdint>
#include <string>

namespace heddle {

struct HostIdentity {
  std::string host_name;
  // Equal on two ranks exactly when host name, kernel boot and (where it can be told apart) the mount of
  // /dev/shm are: a boot alone is not enough, because containers share the kernel but need not share memory.
  std::uint64_t value = 0;
  // Of the running kernel, whose cores all share that run under it, in whatever containers; 0: not known.
  std::uint64_t kernel = 0;
  // Among whom the number of a process means the same one; 0: not known.
  std::uint64_t pid_namespace = 0;
  // Among whom the time since boot is the same; 0: all, before Linux 5.6.
  std::uint64_t time_namespace = 0;
};

// Reads a few small files; never fails (what cannot be read does not take part in the value).
HostIdentity host_identity();

}  // namespace heddle
