// Writes that may find nobody at the other end of a pipe. For the preload library as well: libc alone.
#pragma once

#include <pthread.h>
#include <signal.h>
#include <time.h>

namespace heddle {

// While one lives this thread's writes to a pipe that nobody reads fail, and do not end the process: a
// program that never writes to its standard error must not die of a line of ours (`program 2>&1 | head`).
class NoSigpipe {
 public:
  NoSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    was_pending_ = sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
    blocked_ = pthread_sigmask(SIG_BLOCK, &pipe_, &before_) == 0;
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;
  ~NoSigpipe() {
    if (!blocked_) return;
    // Ours came to this thread. One that waited before stays.
    const timespec at_once = {};
    if (!was_pending_) (void)sigtimedwait(&pipe_, nullptr, &at_once);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t pipe_;
  sigset_t before_;
  bool was_pending_ = false;
  bool blocked_ = false;
};

}  // namespace heddle
