// A thread that moves a communicator's non-blocking collectives while its caller computes.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "setup/core_claim.hpp"

namespace heddle {

class ProgressThread {
 public:
  struct Work {
    // Called over and over, one caller at a time (Turn), while it returns true; the thread sleeps otherwise,
    // until wake().
    std::function<bool()> step;
    // Likewise, after each step: a descriptor that becomes readable when there is something to do; -1: there
    // is already. May be null: the thread polls.
    std::function<int()> arm;
    std::chrono::microseconds longest_sleep{0};  // on that descriptor
  };
  // On `core` when that is not -1 and the system allows it. Throws std::system_error where there is no thread
  // to be had.
  ProgressThread(Work work, int core);
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;
  ~ProgressThread();

  // There is something to move.
  void wake();
  // There may be something, which callers move as long as they come: the thread takes a step when none has
  // had a Turn for some milliseconds, and a few more after that. In a stream of small collectives it keeps
  // out of the way.
  void look_soon();

 private:
  friend class Turn;
  void run(int core);
  bool rest();

  Work work_;
  std::mutex mutex_;                // of steps and turns
  std::atomic<int> wanted_{0};      // callers that wait for their turn
  std::atomic<unsigned> turns_{0};  // that callers have had
  std::atomic<int> looks_{0};       // still to come before it sleeps until it is called
  std::atomic<bool> over_{false};
  // Of its sleep. Apart from the other one, which callers hold nearly all the time: to wait for that would
  // cost them every call.
  std::mutex bell_;
  std::condition_variable rung_;
  bool woken_ = true;  // by wake(), since the last step
  std::thread thread_;
};

// As long as it lives, the thread leaves the communicator alone, and `thread`, through which callers find
// that there is one, is null: whoever is called meanwhile need not ask again. Without a thread: nothing.
class Turn {
 public:
  explicit Turn(ProgressThread*& thread) : asked_(thread), thread_(thread) {
    if (thread_ != nullptr) enter();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    if (thread_ != nullptr) leave();
  }

 private:
  void enter();
  void leave();

  ProgressThread*& asked_;
  ProgressThread* thread_;
};

// What `call` returns, in a Turn. Out of the way of those who have no thread.
template <typename Call>
[[gnu::noinline, gnu::cold]] auto in_turn(ProgressThread*& thread, Call call) {
  const Turn turn(thread);
  return call();
}

// The core for the thread of member `member` of a node whose ranks make these claims: one of those that are
// left when every rank has one to itself, those of the job that make none here as well. -1: there is none for
// it.
int spare_core(const std::vector<CoreClaim>& claims, int member);

// The cores for its other threads: the spare ones are dealt out to the members in turn, at most `most` to
// each. `one_taken`: that of spare_core() has a thread already.
std::vector<int> spare_cores(const std::vector<CoreClaim>& claims, int member, bool one_taken,
                             std::size_t most);

}  // namespace heddle
