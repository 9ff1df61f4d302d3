#include "engine/waiter.hpp"

#include <poll.h>
#include <sched.h>

#include <thread>

namespace heddle {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLookEvery{100};
constexpr milliseconds kSleepAfter{2000};
// A library of messages may have work that no descriptor tells of, and the host MPI tells of none.
constexpr long kSleepNs = 5'000'000;
constexpr long kSleepBesidesHostNs = 500'000;

// False: there is something to do at once.
bool sleep_on(Transport& transport, bool besides_host) {
  if (!transport.arm()) return false;
  pollfd wake{transport.wake_descriptor(), POLLIN, 0};
  const timespec longest{0, besides_host ? kSleepBesidesHostNs : kSleepNs};
  // An interrupted sleep is a short one.
  (void)ppoll(&wake, 1, &longest, nullptr);
  return true;
}

}  // namespace

int default_spins(bool own_core) {
  return own_core ? 4000 : 30;
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
