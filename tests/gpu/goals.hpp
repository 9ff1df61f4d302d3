// Targets for one H200, beside what was measured: lines that tests/gpu/run shows once more at its end.
#pragma once

#include <cstdio>

namespace heddle::test {

inline void print_goal(const char* what, double measured, const char* wanted, bool reached) {
  std::printf("goal: %-74s %8.2f, wanted %-12s %s\n", what, measured, wanted, reached ? "reached" : "MISSED");
}

}  // namespace heddle::test
