#include "base/threads.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <exception>

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

struct Stack {
  std::uintptr_t end = 0;
  std::size_t bytes = 0;  // 0: not known
};

// Of the calling thread. For the process's first one the C library reads through /proc, so it is asked once.
const Stack& own_stack() {
  thread_local const Stack stack = [] {
    Stack found;
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return found;
    void* lowest = nullptr;
    if (pthread_attr_getstack(&attributes, &lowest, &found.bytes) == 0)
      found.end = reinterpret_cast<std::uintptr_t>(lowest);
    else
      found.bytes = 0;
    pthread_attr_destroy(&attributes);
    return found;
  }();
  return stack;
}

// Below the caller's frame; SIZE_MAX: not known. On a stack of the program's own making (coroutines) none
// that may be counted on: there are such of 16 KiB.
std::size_t stack_left() {
  const Stack& stack = own_stack();
  if (stack.bytes == 0) return SIZE_MAX;
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  return here < stack.end || here - stack.end > stack.bytes ? 0 : here - stack.end;
}

// What a thread is given to do, and what it throws.
struct Work {
  const std::function<void()>& function;
  std::exception_ptr thrown;
};

void* run_work(void* argument) {
  auto& work = *static_cast<Work*>(argument);
  try {
    work.function();
  } catch (...) {
    work.thrown = std::current_exception();
  }
  return nullptr;
}

}  // namespace

void ask_for_short_turns() {
  constexpr std::uint64_t kShortestTurn = 100'000;  // that the system takes
  SchedulingAttributes attributes{};
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
  if (attributes.policy != SCHED_OTHER && attributes.policy != SCHED_BATCH) return;
  attributes.runtime = kShortestTurn;
  (void)syscall(SYS_sched_setattr, 0, &attributes, 0);
}

void with_stack(std::size_t bytes, const std::function<void()>& work) {
  constexpr std::size_t kBesides = 64 * 1024;  // what a thread has on its stack before it begins
  if (stack_left() < bytes) {
    pthread_attr_t attributes;
    pthread_t thread{};
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, bytes + kBesides);
    Work all{work, nullptr};
    const int error = [&] {
      const SignalsBlocked block;
      return pthread_create(&thread, &attributes, run_work, &all);
    }();
    pthread_attr_destroy(&attributes);
    if (error == 0) {
      // Whoever is cancelled here would leave the other thread without `all`. Signals come through: a handler
      // may be what the other ranks wait for.
      int before = 0;
      pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
      pthread_join(thread, nullptr);
      pthread_setcancelstate(before, nullptr);
      if (all.thrown) std::rethrow_exception(all.thrown);
      return;
    }
  }
  work();
}

}  // namespace heddle
