// What threads of heddle's own have in common: they take no signals, stay on the core that was found for
// them, and do not wait long for one.
#pragma once

#include <pthread.h>
#include <sched.h>

#include <csignal>
#include <cstddef>
#include <functional>

namespace heddle {

// As long as it lives the calling thread takes no signals, nor do the threads that it makes meanwhile, ever:
// the process's signals go to threads that expect them.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

// The calling thread runs on `core`, unless that is -1; where it is not allowed, wherever the process does.
inline void pin_to_core(int core) {
  if (core < 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(core), &set);
  (void)sched_setaffinity(0, sizeof set, &set);
}

// The calling thread is to run soon when it wakes beside others that compute, and asks in return for short
// turns at a time. A thread that works for some microseconds now and then else waits until a turn of theirs
// is over, 3 ms on Linux. Needs Linux 6.12 and an ordinary scheduling policy; without, nothing changes.
void ask_for_short_turns();

// Does `work`: in the calling thread where its stack has room for `bytes`, else in another, while this one
// waits. Programs have threads with stacks of 16 KiB, and coroutines on stacks of which nothing is known.
// Where no other can be made the calling one does it. Throws what `work` throws.
void with_stack(std::size_t bytes, const std::function<void()>& work);

}  // namespace heddle
