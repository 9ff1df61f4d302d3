// Ports of TCP on which a process may listen.
#pragma once

namespace heddle {

struct PortRange {
  int first = 0;  // 0: any that the system gives
  int last = 0;

  bool any() const { return first == 0; }
  int count() const { return last - first + 1; }
};

}  // namespace heddle
