#include "engine/waiter.hpp"

#include <poll.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <limits>
#include <thread>

namespace heddle {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr milliseconds kLookEvery{100};
constexpr milliseconds kSleepAfter{2000};
// Who sleeps is back tens of microseconds after the message (more in a virtual machine, whose idle core
// sleeps as well), and yields to those who have work as well as it would by sleeping: four ranks on two cores
// sum 8 bytes in 69 us so, and in 97 without.
constexpr int kYieldsBeforeSleep = 50;
// Programs that compute take all of a slice that they are offered, some milliseconds for each message. Who
// has slept is preferred to them: on two busy cores two ranks sum 8 bytes over TCP in 50 us so, and in 10 ms
// with yields. After this it is tried again.
constexpr milliseconds kStrangersStay{100};
// A short wait is over by then, and the host would take a good part of it: Open MPI offers the core itself
// each time that it is asked to yield.
constexpr unsigned kRestsBeforeHost = 4;
// The host MPI tells of nothing that it has to do, so that it is asked when a sleep is over. What other ranks
// ask of this one by it (one-sided operations, large messages) takes several looks of the host's, and comes
// again at once when it is answered: it is asked so often before the next sleep.
constexpr microseconds kLongestBesidesHost{50};
constexpr int kRoundsForHost = 50;

// False: there is something to do at once.
bool sleep_on(Transport& transport, bool besides_host) {
  if (!transport.arm()) return false;
  sleep_until_readable(transport.wake_descriptor(), besides_host ? kLongestBesidesHost : kLongestSleep);
  return true;
}

}  // namespace

int polls_between_looks(const std::function<void()>& look) {
  constexpr int kLooks = 8;
  constexpr int kLeast = 8;
  constexpr int kMost = 1000;
  constexpr double kPollNs = 33;  // with its pause
  constexpr double kShare = 0.25;
  double least_ns = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kLooks; ++i) {
    const TimePoint start = std::chrono::steady_clock::now();
    look();
    least_ns = std::min(
        least_ns, std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count());
  }
  return static_cast<int>(std::clamp<double>(least_ns / (kShare * kPollNs), kLeast, kMost));
}

void sleep_until_readable(int descriptor, std::chrono::nanoseconds longest) {
  pollfd wake{descriptor, POLLIN, 0};
  const timespec limit{longest.count() / 1'000'000'000, longest.count() % 1'000'000'000};
  // An interrupted sleep is a short one.
  (void)ppoll(&wake, 1, &limit, nullptr);
}

long involuntary_switches() {
  rusage usage{};
  return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : -1;
}

void SpinBudget::resume(long switches, std::chrono::nanoseconds patience) {
  if (switches_ < 0 || switches < 0) return;
  const long taken = switches - switches_;
  if (taken > 0) {
    const bool by_strangers = patience >= taken * kSlice;
    now_ = by_strangers ? std::min(longest_, std::max(now_, 1) * 4) : std::max(least_, now_ / 4);
    hold_ = std::min(kLongestHold, hold_ * 2);
    calm_ = 0;
  } else if (++calm_ >= hold_) {
    if (now_ == usual_) hold_ = std::max(kShortestHold, hold_ / 2);
    now_ = now_ < usual_ ? std::min(usual_, now_ * 2) : std::max(usual_, now_ / 2);
    calm_ = 0;
  }
}

SpinBudget default_spins(bool own_core, bool network, bool sleeps) {
  constexpr int kOwnCore = 4000;
  constexpr int kSharedCore = 30;
  // Four ranks on two cores sum 8 bytes over TCP in 40 us so, in 64 with 30 polls.
  constexpr int kSharedCoreNetwork = 3;
  // About a slice: a millisecond and more.
  constexpr int kStrangers = 20'000;
  // Others may want the core without belonging to the job. Some microseconds in shared memory still beat
  // giving it away.
  constexpr int kWanted = 200;
  constexpr int kWantedNetwork = 30;
  const int shared = network ? kSharedCoreNetwork : kSharedCore;
  if (!own_core) return {shared, shared};
  // Thousands of polls of a network are milliseconds: only where they have proved to disturb nobody.
  const int least = sleeps ? shared : network ? kWantedNetwork : kWanted;
  return {least, kOwnCore, network ? kOwnCore : kStrangers, network ? least : kOwnCore};
}

Patience::Patience(const WaitPolicy& policy)
    : policy_(policy),
      started_(now(policy.clock)),
      begin_(started_),
      now_(started_),
      next_look_(started_ + kLookEvery),
      yields_(started_ < policy.strangers_until ? kYieldsBeforeSleep : 0) {}

void Patience::offer_core() {
  const TimePoint before = std::chrono::steady_clock::now();
  sched_yield();
  if (policy_.sleeps_on == nullptr || std::chrono::steady_clock::now() - before < SpinBudget::kSlice) return;
  policy_.strangers_until = before + kStrangersStay;
  yields_ = kYieldsBeforeSleep;
}

bool Patience::rest() {
  if (policy_.host_progress && host_is_due()) policy_.host_progress();
  // Where time is simulated all ranks are one thread, and whoever moves the host has waited already.
  if (!policy_.clock) {
    if (rounds_for_host_ > 0) {
      --rounds_for_host_;
      if (started_ >= policy_.strangers_until) offer_core();
      return false;
    }
    if (policy_.sleeps_on != nullptr && yields_ < kYieldsBeforeSleep) {
      ++yields_;
      offer_core();
      return false;
    }
    if (policy_.sleeps_on != nullptr && sleep_on(*policy_.sleeps_on, policy_.host_progress != nullptr)) {
      slept_ = true;  // the clock costs nothing beside that
    } else if (now_ - begin_ < kSleepAfter) {
      sched_yield();
      // Reading the clock costs as much as a poll: not every round.
      if (++rounds_ % 16 != 0) return false;
    } else {
      slept_ = true;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    if (slept_ && policy_.host_progress) rounds_for_host_ = kRoundsForHost;
  }
  now_ = now(policy_.clock);
  return look_is_due();
}

bool Patience::glance() {
  const TimePoint time = now(policy_.clock);
  // The others may have waited for this rank meanwhile.
  if (time - now_ > kLookEvery) begin_ += time - now_ - kLookEvery;
  now_ = time;
  return look_is_due();
}

bool Patience::look_is_due() {
  if (now_ < next_look_) return false;
  next_look_ = now_ + kLookEvery;
  return true;
}

// Where it sleeps, a look of the host's costs as much as all else in a short wait.
bool Patience::host_is_due() {
  if (policy_.clock || rounds_for_host_ > 0) return true;
  const bool sleeps = policy_.sleeps_on != nullptr && yields_ >= kYieldsBeforeSleep;
  if (++rests_ <= kRestsBeforeHost && !sleeps) return false;
  if (policy_.sleeps_on == nullptr) return true;
  const TimePoint time = now(policy_.clock);
  if (time < policy_.host_due) return false;
  policy_.host_due = time + kLongestBesidesHost;
  return true;
}

bool Patience::see(std::uint64_t own, std::uint64_t others) {
  const bool moved = looked_ && own != own_;
  if (moved || (looked_ && others != others_)) begin_ = now_;
  looked_ = true;
  own_ = own;
  others_ = others;
  return moved;
}

std::chrono::nanoseconds Patience::yielded() const {
  return slept_ ? std::chrono::nanoseconds(0) : now(policy_.clock) - started_;
}

milliseconds Patience::waited() const {
  return std::chrono::duration_cast<milliseconds>(now_ - begin_);
}

bool Patience::warning_due(int times) {
  if (warned_ || policy_.warn_after.count() == 0 || waited() < policy_.warn_after * times) return false;
  warned_ = true;
  return true;
}

bool Patience::deadline_passed() const {
  return policy_.timeout.count() != 0 && waited() >= policy_.timeout;
}

}  // namespace heddle
