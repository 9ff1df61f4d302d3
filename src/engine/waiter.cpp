#include "engine/waiter.hpp"

#include <poll.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <thread>

namespace heddle {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr milliseconds kLookEvery{100};
constexpr milliseconds kSleepAfter{2000};
// The host MPI tells of nothing that it has to do.
constexpr microseconds kLongestBesidesHost{500};

// False: there is something to do at once.
bool sleep_on(Transport& transport, bool besides_host) {
  if (!transport.arm()) return false;
  sleep_until_readable(transport.wake_descriptor(), besides_host ? kLongestBesidesHost : kLongestSleep);
  return true;
}

// Of this thread; they happen when the system gives the core to somebody else who could run.
long involuntary_switches() {
  rusage usage{};
  return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : -1;
}

}  // namespace

void sleep_until_readable(int descriptor, std::chrono::nanoseconds longest) {
  pollfd wake{descriptor, POLLIN, 0};
  const timespec limit{longest.count() / 1'000'000'000, longest.count() % 1'000'000'000};
  // An interrupted sleep is a short one.
  (void)ppoll(&wake, 1, &limit, nullptr);
}

void SpinBudget::spent() {
  if (least_ == most_ || switches_ < 0) return;
  now_ =
      involuntary_switches() != switches_ ? std::max(least_, now_ / 2) : std::min(most_, now_ + now_ / 8 + 1);
}

void SpinBudget::resume() {
  if (least_ != most_) switches_ = involuntary_switches();
}

SpinBudget default_spins(bool own_core, bool sleeps) {
  constexpr int kOwnCore = 4000;
  constexpr int kSharedCore = 30;
  // Others may want the core without belonging to the job. Some microseconds in shared memory still beat giving it away.
  constexpr int kWanted = 200;
  if (!own_core) return {kSharedCore, kSharedCore};
  return {sleeps ? kSharedCore : kWanted, kOwnCore};
}

Patience::Patience(const WaitPolicy& policy)
    : policy_(policy), begin_(now(policy.clock)), now_(begin_), next_look_(begin_ + kLookEvery) {}

bool Patience::rest() {
  if (policy_.host_progress) policy_.host_progress();
  // Where time is simulated all ranks are one thread, and whoever moves the host has waited already.
  if (!policy_.clock) {
    if (policy_.sleeps_on != nullptr && sleep_on(*policy_.sleeps_on, policy_.host_progress != nullptr)) {
      // The clock costs nothing beside that.
    } else if (now_ - begin_ < kSleepAfter) {
      sched_yield();
      // Reading the clock costs as much as a poll: not every round.
      if (++rounds_ % 16 != 0) return false;
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  now_ = now(policy_.clock);
  if (now_ < next_look_) return false;
  next_look_ = now_ + kLookEvery;
  return true;
}

milliseconds Patience::waited() const {
  return std::chrono::duration_cast<milliseconds>(now_ - begin_);
}

bool Patience::warning_due() {
  if (warned_ || policy_.warn_after.count() == 0 || waited() < policy_.warn_after) return false;
  warned_ = true;
  return true;
}

bool Patience::deadline_passed() const {
  return policy_.timeout.count() != 0 && waited() >= policy_.timeout;
}

}  // namespace heddle
