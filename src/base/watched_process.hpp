// Whether another process still runs.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace heddle {

// When the process started, in the kernel's ticks since it booted: that tells processes of one number apart.
// 0: not to be had. Reads a file of /proc.
std::uint64_t start_of_process(pid_t pid);

// Another process of this machine and PID namespace, or this one. Copies are equal; any thread.
class WatchedProcess {
 public:
  // `started`: what start_of_process() gave it itself.
  WatchedProcess(pid_t pid, std::uint64_t started) : pid_(pid), started_(started) {}
  // It runs, as far as the caller knows.
  explicit WatchedProcess(pid_t pid) : WatchedProcess(pid, start_of_process(pid)) {}

  // Whether it has ended, be it that its parent has not asked for its status yet, or that another process has
  // its number by now.
  bool is_gone() const;

 private:
  pid_t pid_;
  std::uint64_t started_;
};

}  // namespace heddle
