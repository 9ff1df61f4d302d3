// A machine of two domains that is not there: hwloc is told so, and each thread or process takes a core of
// one.
#pragma once

#include <sched.h>

#include <cstdlib>

namespace heddle::test {

// For as long as it lives, hwloc finds two packages of one core each; what is set up meanwhile sees domains
// of the ranks bound to either. Set the variable from one thread, before the others are started.
class DividedMachine {
 public:
  DividedMachine() { setenv("HWLOC_SYNTHETIC", "package:2 l3:1(size=32MiB) l2:1(size=1MiB) core:1 pu:1", 1); }
  DividedMachine(const DividedMachine&) = delete;
  DividedMachine& operator=(const DividedMachine&) = delete;
  ~DividedMachine() { unsetenv("HWLOC_SYNTHETIC"); }

  // The calling thread belongs to domain 0 or 1 from now on. False where it may not run on that core.
  static bool enter(int domain) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<unsigned>(domain), &set);
    return sched_setaffinity(0, sizeof set, &set) == 0;
  }
};

}  // namespace heddle::test
