#include "engine/waiter.hpp"

#include <sched.h>

#include <thread>

namespace heddle {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kLookEvery{100};
constexpr milliseconds kSleepAfter{2000};

}  // namespace

int default_spins(bool own_core) {
  return own_core ? 4000 : 30;
}

Patience::Patience(const WaitPolicy& policy)
    : policy_(policy), begin_(steady_clock::now()), now_(begin_), next_look_(begin_ + kLookEvery) {}

bool Patience::rest() {
  if (policy_.host_progress) policy_.host_progress();
  if (now_ - begin_ < kSleepAfter) {
    sched_yield();
    // Reading the clock costs as much as a poll: not every round.
    if (++rounds_ % 16 != 0) return false;
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  now_ = steady_clock::now();
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
