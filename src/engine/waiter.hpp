// How a rank waits: spin while the answer is a cache line away, then give the core to whoever has work, and
// look now and then at the clock and at those waited for. Never burns a core that a peer needs.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "base/clock.hpp"
#include "base/cpu.hpp"
#include "base/status.hpp"
#include "transports/transport.hpp"

namespace heddle {

// How many polls to spend before giving the core away, from what happened when it was given away. Whoever
// took it for a moment was waited for, or is a rank itself: spinning only kept it from running, and the
// budget becomes a quarter. Whoever kept it for a slice of the system's is a stranger: giving it away cost
// more than any spinning, and the budget is quadrupled, up to about a slice. It goes back to what is usual
// after a number of waits in which nobody took the core, and the number doubles each time that this proves
// wrong.
class SpinBudget {
 public:
  // Held for so long on average, the core was given to strangers.
  static constexpr std::chrono::microseconds kSlice{300};

  SpinBudget() = default;
  // From `least` to `longest`, `usual` where nobody wants the core, `first` to begin with; all the same: it
  // stays.
  SpinBudget(int least, int usual, int longest, int first)
      : least_(least), usual_(usual), longest_(longest), now_(first) {}
  SpinBudget(int least, int usual) : SpinBudget(least, usual, usual, usual) {}

  int polls() const { return now_; }
  // Else it need not be told anything, which takes two system calls in each wait.
  bool adapts() const { return least_ < longest_; }
  // The polls were spent in vain: patience begins. `switches`: how often the system has taken the core from
  // this thread so far (see involuntary_switches()); -1: not known.
  void spent(long switches) { switches_ = switches; }
  // What was waited for is there: patience, which offers the core to others, ends after `patience`.
  void resume(long switches, std::chrono::nanoseconds patience);

 private:
  static constexpr int kShortestHold = 16;
  static constexpr int kLongestHold = 4096;
  int least_ = 2000;
  int usual_ = 2000;
  int longest_ = 2000;
  int now_ = 2000;
  long switches_ = -1;        // when patience began
  int hold_ = kShortestHold;  // waits to pass before `now_` goes towards `usual_`
  int calm_ = 0;              // of them so far
};

// Of this thread; they happen when the system gives the core to somebody else who could run. -1: not known.
long involuntary_switches();

struct WaitPolicy {
  mutable SpinBudget spins;                 // before the first yield
  std::chrono::milliseconds warn_after{0};  // one warning after this; 0: never
  std::chrono::milliseconds timeout{0};     // an error after this; 0: never
  std::function<void()> host_progress;      // moves the host MPI's own traffic; may be null
  int polls_between_looks = 8;              // of the host's, while it spins
  mutable TimePoint host_due;               // not before, where it sleeps
  Clock clock;
  // Where nothing else is waited for: a rank that is alone on its node sleeps until this one has something,
  // instead of yielding. Null: it yields.
  Transport* sleeps_on = nullptr;
  // Until then it sleeps at once: who yields is without the core for a slice.
  mutable TimePoint strangers_until;
};

// How many polls of memory take four times what a look of the host's takes, which is measured: some tens of
// nanoseconds, or a system call where the host has sockets.
int polls_between_looks(const std::function<void()>& look);

// Sleeps until the descriptor is readable, for `longest` at most, or until a signal comes.
void sleep_until_readable(int descriptor, std::chrono::nanoseconds longest);

// A library of messages may have work that no descriptor tells of: sleeps are no longer than this.
constexpr std::chrono::milliseconds kLongestSleep{5};

// The policy's `spins`: long where each rank of the node has a core of its own, short where a peer may need
// this one, and shorter where a poll asks the `network` as well, which may take a system call. `sleeps`: it
// can sleep after that.
SpinBudget default_spins(bool own_core, bool network, bool sleeps);

// The patience of one wait, from the moment the spinning is over, or of tests that follow each other.
class Patience {
 public:
  explicit Patience(const WaitPolicy& policy);

  // Rests once: drives the host, yields or sleeps until a message comes, and after two seconds sleeps for
  // fractions of a millisecond. True every tenth of a second or so: time to look at who is missing.
  bool rest();
  // Instead, where the caller does something else between two looks of its own: what was longer than a tenth
  // of a second of that was no waiting. True as rest() is.
  bool glance();

  // At each look: how far this rank has come, and others that it may depend on, in any unit. Where that has
  // changed since the last look, the wait begins anew. True: this rank has moved.
  bool see(std::uint64_t own, std::uint64_t others);

  // For how long this rank has only yielded; 0 where it has slept as well, which may be as long as it likes.
  std::chrono::nanoseconds yielded() const;
  // Since the wait began, or since something last moved.
  std::chrono::milliseconds waited() const;
  // True once, when the warning is due: after `times` the time of one.
  bool warning_due(int times = 1);
  bool deadline_passed() const;

 private:
  bool host_is_due();
  bool look_is_due();
  void offer_core();

  const WaitPolicy& policy_;
  TimePoint started_;
  TimePoint begin_;  // of what counts as waiting for one and the same thing
  TimePoint now_;
  TimePoint next_look_;
  unsigned rests_ = 0;
  unsigned rounds_ = 0;
  int yields_ = 0;           // before the first sleep
  int rounds_for_host_ = 0;  // before the next one
  bool warned_ = false;
  bool looked_ = false;
  bool slept_ = false;
  std::uint64_t own_ = 0;  // at the last look
  std::uint64_t others_ = 0;
};

// The part of wait_until_done() that comes after the tight loop: apart, so that the loop can be inlined.
template <typename Poll, typename Inspect>
[[gnu::noinline]] Status wait_with_patience(const WaitPolicy& policy, Poll&& poll, Inspect&& inspect) {
  bool done = false;
  const bool adapts = policy.spins.adapts();
  if (adapts) policy.spins.spent(involuntary_switches());
  Patience patience(policy);
  while (true) {
    const bool look = patience.rest();
    HEDDLE_TRY(poll(&done));
    if (done) break;
    if (!look || inspect(patience).ok()) continue;
    // Whoever is gone may have done its part after the poll, and then ended.
    HEDDLE_TRY(poll(&done));
    if (done) break;
    HEDDLE_TRY(inspect(patience));
  }
  if (adapts) policy.spins.resume(involuntary_switches(), patience.yielded());
  return {};
}

// Polls until done, first in a tight loop, then with patience. `poll(&done)` moves the operation;
// `inspect(patience)` is called at each look and returns an error to end the wait, which it does when it says
// so again after one more poll.
template <typename Poll, typename Inspect>
[[gnu::always_inline]] inline Status wait_until_done(const WaitPolicy& policy, Poll&& poll,
                                                     Inspect&& inspect) {
  bool done = false;
  // The first polls follow each other closely: a pause is as long as the hop that is awaited.
  constexpr int kEager = 256;
  // Then another rank may be waiting for this one to take part in what it does by the host MPI (one-sided
  // operations, large messages) before it comes to the collective.
  int before_look = policy.polls_between_looks;
  const int spins = policy.spins.polls();
  for (int i = 0; i < spins; ++i) {
    HEDDLE_TRY(poll(&done));
    if (done) return {};
    if (i < kEager) continue;
    cpu_relax();
    if (--before_look > 0 || !policy.host_progress) continue;
    before_look = policy.polls_between_looks;
    policy.host_progress();
  }
  return wait_with_patience(policy, poll, inspect);
}

}  // namespace heddle
