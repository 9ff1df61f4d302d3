// Waiting: what is called, how often, and how a wait ends.
#include "engine/waiter.hpp"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <thread>

namespace {

// What an offer of the core by this thread takes, and how many there were; negative: the system's own.
thread_local std::chrono::microseconds offer_takes{-1};
thread_local int offers = 0;

}  // namespace

// In place of the library's.
extern "C" int sched_yield() noexcept {
  ++offers;
  if (offer_takes.count() < 0) return static_cast<int>(::syscall(SYS_sched_yield));
  if (offer_takes.count() > 0) std::this_thread::sleep_for(offer_takes);
  return 0;
}

namespace heddle::test {
namespace {

using std::chrono::milliseconds;

class OffersTake {
 public:
  explicit OffersTake(std::chrono::microseconds time) { offer_takes = time; }
  ~OffersTake() { offer_takes = std::chrono::microseconds(-1); }
};

Status never(bool* done) {
  *done = false;
  return {};
}

TEST(Waiter, OneRankPerCoreSpinsLong) {
  EXPECT_GT(default_spins(true, false, false).polls(), 10 * default_spins(false, false, false).polls());
  EXPECT_GT(default_spins(false, false, false).polls(), 0);
  EXPECT_LT(default_spins(false, true, true).polls(), default_spins(false, false, false).polls());
  EXPECT_GT(default_spins(false, true, true).polls(), 0);
}

TEST(Waiter, WhatIsDoneIsNotWaitedFor) {
  WaitPolicy policy;
  int polls = 0;
  const Status status = wait_until_done(
      policy,
      [&](bool* done) -> Status {
        ++polls;
        *done = polls == 3;
        return {};
      },
      [](Patience&) { return Status(Code::internal, "looked"); });
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(polls, 3);
}

// How often the host is driven in a wait that is over at that poll.
int driven_in(WaitPolicy& policy, int length) {
  int driven = 0;
  int polls = 0;
  policy.host_progress = [&] { ++driven; };
  const Status status = wait_until_done(
      policy,
      [&](bool* done) -> Status {
        *done = ++polls == length;
        return {};
      },
      [](Patience&) { return Status(); });
  EXPECT_TRUE(status.ok());
  policy.host_progress = nullptr;
  return driven;
}

// After some rests, which are over sooner than the host has looked at everything.
TEST(Waiter, TheHostIsDrivenOnceSpinningIsOver) {
  WaitPolicy policy;
  policy.spins = SpinBudget(10, 10);
  EXPECT_EQ(driven_in(policy, 25), 11);
}

// Not at once, and seldom: most waits are short, and all that they are to the host is a delay.
TEST(Waiter, TheHostIsDrivenNowAndThenWhileItSpins) {
  WaitPolicy policy;
  policy.spins = SpinBudget(1000, 1000);
  policy.polls_between_looks = 8;
  EXPECT_EQ(driven_in(policy, 264), 0);
  EXPECT_EQ(driven_in(policy, 265), 1);
  EXPECT_EQ(driven_in(policy, 900), 80);
  policy.polls_between_looks = 100;
  EXPECT_EQ(driven_in(policy, 900), 6);
}

TEST(Waiter, LooksThatTakeLongAreSeldom) {
  const int often = polls_between_looks([] {});
  EXPECT_GE(often, 8);
  EXPECT_LT(often, 500);
  EXPECT_EQ(polls_between_looks([] { std::this_thread::sleep_for(milliseconds(1)); }), 1000);
}

TEST(Waiter, ErrorsEndIt) {
  WaitPolicy policy;
  policy.spins = SpinBudget(2, 2);
  int polls = 0;
  const Status status = wait_until_done(
      policy, [&](bool*) { return ++polls < 4 ? Status() : Status(Code::peer_failed, "gone"); },
      [](Patience&) { return Status(); });
  EXPECT_EQ(status.code(), Code::peer_failed);
  EXPECT_EQ(polls, 4);
}

TEST(Waiter, TheInspectorEndsItAtTheDeadline) {
  WaitPolicy policy;
  policy.spins = SpinBudget(0, 0);
  policy.timeout = milliseconds(150);
  policy.warn_after = milliseconds(1);
  int warnings = 0;
  const Status status = wait_until_done(policy, never, [&](Patience& patience) {
    if (patience.warning_due()) ++warnings;
    EXPECT_EQ(patience.deadline_passed(), patience.waited() >= policy.timeout);
    return patience.deadline_passed() ? Status(Code::timeout, "late") : Status();
  });
  EXPECT_EQ(status.code(), Code::timeout);
  EXPECT_EQ(warnings, 1);
}

// The deadline and the warning count from the last look at which something had moved.
TEST(Waiter, WhileSomethingMovesTheWaitBeginsAnew) {
  WaitPolicy policy;
  policy.spins = SpinBudget(0, 0);
  policy.timeout = milliseconds(250);
  policy.warn_after = milliseconds(250);
  TimePoint time{};
  policy.clock = [&] { return time += milliseconds(1); };
  int looks = 0;
  int warnings = 0;
  constexpr int kMoves = 20;
  const Status status = wait_until_done(policy, never, [&](Patience& patience) {
    const auto moves = static_cast<std::uint64_t>(std::min(++looks, kMoves));
    // This rank and others, in turn.
    const bool moved = patience.see(moves / 2, (moves + 1) / 2);
    EXPECT_EQ(moved, looks <= kMoves && looks % 2 == 0) << looks;
    if (patience.warning_due()) ++warnings;
    EXPECT_FALSE(patience.deadline_passed() && looks <= kMoves) << looks;
    EXPECT_EQ(warnings > 0, patience.deadline_passed());
    return patience.deadline_passed() ? Status(Code::timeout, "late") : Status();
  });
  EXPECT_EQ(status.code(), Code::timeout);
  EXPECT_EQ(looks, kMoves + 4) << "three and, as an error is looked at twice, one more";
}

// A rank may do its part and end between the poll that missed it and the look that finds it gone.
TEST(Waiter, WhatCameBeforeTheEndOfWhoSentItCounts) {
  for (const bool came : {true, false}) {
    WaitPolicy policy;
    policy.spins = SpinBudget(0, 0);
    bool there = false;
    int looks = 0;
    const Status status = wait_until_done(
        policy,
        [&](bool* done) -> Status {
          *done = there;
          return {};
        },
        [&](Patience&) {
          ++looks;
          there = came;
          return Status(Code::peer_failed, "gone");
        });
    EXPECT_EQ(status.code(), came ? Code::ok : Code::peer_failed);
    EXPECT_EQ(looks, came ? 1 : 2);
  }
}

// And the look at that time may find another one missing, who is there.
TEST(Waiter, WhoIsGoneMayHaveBeenWaitedForByAPartAlone) {
  WaitPolicy policy;
  policy.spins = SpinBudget(0, 0);
  int looks = 0;
  const Status status = wait_until_done(
      policy,
      [&](bool* done) -> Status {
        *done = looks == 3;
        return {};
      },
      [&](Patience&) { return ++looks == 1 ? Status(Code::peer_failed, "gone") : Status(); });
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(looks, 3);
}

TEST(Waiter, ZeroMeansNever) {
  WaitPolicy policy;
  policy.spins = SpinBudget(0, 0);
  int looks = 0;
  const Status status = wait_until_done(policy, never, [&](Patience& patience) {
    EXPECT_FALSE(patience.warning_due());
    EXPECT_FALSE(patience.deadline_passed());
    return ++looks < 2 ? Status() : Status(Code::timeout, "enough");
  });
  EXPECT_EQ(status.code(), Code::timeout);
}

// What a network's transport is to a sleeper.
class Wakes final : public Transport {
 public:
  Wakes() : descriptor_(eventfd(0, EFD_NONBLOCK)) {}
  ~Wakes() override { close(descriptor_); }
  const TransportCapabilities& capabilities() const override { return capabilities_; }
  Status send(int, std::uint32_t, const void*, std::size_t, Ticket&) override { return {}; }
  Status recv(int, std::uint32_t, void*, std::size_t, Ticket&) override { return {}; }
  Status progress() override { return {}; }
  void cancel(Ticket&) override {}
  bool peer_is_gone(int) const override { return false; }
  int wake_descriptor() const override { return descriptor_; }
  bool arm() override {
    ++armed;
    return idle;
  }
  void wake() { EXPECT_EQ(eventfd_write(descriptor_, 1), 0); }

  int armed = 0;
  bool idle = true;

 private:
  int descriptor_;
  TransportCapabilities capabilities_;
};

// How often the thread gives up its core to wait while it looks so many times, and not because others want
// it: that says nothing of how busy the machine is.
long sleeps_of(const WaitPolicy& policy, int polls) {
  rusage before{};
  rusage after{};
  getrusage(RUSAGE_THREAD, &before);
  const Status status = wait_until_done(
      policy,
      [&](bool* done) -> Status {
        *done = --polls == 0;
        return {};
      },
      [](Patience&) { return Status(); });
  getrusage(RUSAGE_THREAD, &after);
  EXPECT_TRUE(status.ok());
  return after.ru_nvcsw - before.ru_nvcsw;
}

TEST(Waiter, WhereOnlyTheNetworkIsWaitedForItSleeps) {
  const OffersTake nothing(std::chrono::microseconds(0));
  Wakes network;
  WaitPolicy policy;
  policy.spins = SpinBudget(1, 1);
  policy.sleeps_on = &network;
  // Fifty yields come first. Sleeps are bounded, because descriptors do not tell everything.
  EXPECT_GE(sleeps_of(policy, 60), 5);
  EXPECT_GE(network.armed, 2);
  // The host MPI tells of nothing, and is driven as well: many times between two sleeps, since what it does
  // for another rank takes several, and that rank may have more for it.
  int driven = 0;
  policy.host_progress = [&] { ++driven; };
  const long sleeps = sleeps_of(policy, 400);
  EXPECT_GE(sleeps, 5);
  EXPECT_LE(sleeps, 40);
  EXPECT_GE(driven, 250);
}

// What others keep for a slice is not offered to them again and again, and after a while once.
TEST(Waiter, WhereStrangersTakeTheCoreItSleepsAtOnce) {
  Wakes network;
  network.wake();
  WaitPolicy policy;
  policy.spins = SpinBudget(1, 1);
  policy.sleeps_on = &network;
  const auto offers_in_four_waits = [&](std::chrono::microseconds take) {
    const OffersTake each(take);
    offers = 0;
    for (int wait = 0; wait < 4; ++wait)
      sleeps_of(policy, 120);
    return offers;
  };
  int driven = 0;
  for (const bool host : {false, true}) {
    if (host) policy.host_progress = [&] { ++driven; };
    policy.strangers_until = {};
    EXPECT_GT(offers_in_four_waits(std::chrono::microseconds(0)), 4 * 40);
    driven = 0;
    EXPECT_LE(offers_in_four_waits(std::chrono::milliseconds(1)), 4 * 2);
  }
  // The host is looked at none the less.
  EXPECT_GE(driven, 3 * 50);
}

TEST(Waiter, NobodySleepsOverWhatIsThere) {
  Wakes network;
  network.idle = false;  // something has come since the last look
  WaitPolicy policy;
  policy.spins = SpinBudget(1, 1);
  policy.sleeps_on = &network;
  EXPECT_LE(sleeps_of(policy, 100), 2);
  // Nor on a descriptor that is readable.
  network.idle = true;
  network.wake();
  EXPECT_LE(sleeps_of(policy, 100), 2);
}

}  // namespace
}  // namespace heddle::test
