#include "base/threads.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace heddle {
namespace {

// As in linux/sched/types.h, which does not go together with every C library's sched.h.
struct SchedulingAttributes {
  std::uint32_t size;
  std::uint32_t policy;
  std::uint64_t flags;
  std::int32_t nice;
  std::uint32_t priority;
  std::uint64_t runtime;  // of ordinary policies: a turn, in nanoseconds
  std::uint64_t deadline;
  std::uint64_t period;
};

}  // namespace

void ask_for_short_turns() {
  constexpr std::uint64_t kShortestTurn = 100'000;  // that the system takes
  SchedulingAttributes attributes{};
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
  if (attributes.policy != SCHED_OTHER && attributes.policy != SCHED_BATCH) return;
  attributes.runtime = kShortestTurn;
  (void)syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace heddle
