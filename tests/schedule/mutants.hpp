// What the tests that damage schedules share.
#pragma once

#include <algorithm>
#include <cstdint>

#include "schedule/cursor.hpp"

namespace heddle::test {

// Says anew what is open at most: a mutant whose only fault is an outdated number says nothing about the
// other checks.
inline void recount_open(Schedule& s) {
  constexpr int kMostSteps = 100'000;  // a damaged repeat may have no end
  std::uint32_t open = 0;
  s.max_open = 0;
  Cursor c(s);
  for (int n = 0; !c.done() && n < kMostSteps; c.advance(), ++n) {
    if (c.step().kind == StepKind::send || c.step().kind == StepKind::recv)
      s.max_open = std::max(s.max_open, ++open);
    if (c.step().kind == StepKind::wait) open = std::min(open, c.step().count);
  }
}

}  // namespace heddle::test
