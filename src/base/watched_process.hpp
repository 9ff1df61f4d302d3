// Whether another process still runs.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace heddle {

// Another process of this machine and PID namespace, or this one. Copies are equal; any thread.
class WatchedProcess {
 public:
  // It runs, as far as the caller knows.
  explicit WatchedProcess(pid_t pid);

  // Whether it has ended, be it that its parent has not asked for its status yet, or that another process has its number by now.
  bool is_gone() const;

 private:
  pid_t pid_;
  std::uint64_t
      started_;  // in the kernel's ticks since it booted, which tells processes of one number apart; 0: not to be had
};

}  // namespace heddle
