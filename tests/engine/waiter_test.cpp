// Waiting: what is called, how often, and how a wait ends.
#include "engine/waiter.hpp"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <thread>

namespace heddle::test {
namespace {

using std::chrono::milliseconds;

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

// Waits whose polls were in vain, and how often others took the core in patience, and kept it.
class Waits {
 public:
  explicit Waits(SpinBudget& budget) : budget_(budget) {}
  void wait(int taken, std::chrono::microseconds kept = std::chrono::microseconds(20)) {
    budget_.spent(switches_ += 5);  // before that it counts for nothing
    budget_.resume(switches_ += taken, taken * kept + std::chrono::microseconds(2));
  }

 private:
  SpinBudget& budget_;
  long switches_ = 3;
};

// Calm waits until the budget has grown, `limit` at most.
int waits_until_it_grows(const SpinBudget& budget, Waits& waits, int limit) {
  const int polls = budget.polls();
  int count = 0;
  for (; count < limit && budget.polls() == polls; ++count)
    waits.wait(0);
  return count;
}

TEST(SpinBudget, ShrinksWhenTheCoreIsTakenForAMomentAndDoublesAfterCalm) {
  SpinBudget budget(200, 4000, 20'000, 4000);
  Waits waits(budget);
  for (const int expected : {1000, 250, 200, 200}) {
    waits.wait(expected == 250 ? 3 : 1);
    EXPECT_EQ(budget.polls(), expected);
  }
  for (const int expected : {400, 800, 1600, 3200, 4000}) {
    waits_until_it_grows(budget, waits, 100'000);
    EXPECT_EQ(budget.polls(), expected);
  }
  EXPECT_EQ(waits_until_it_grows(budget, waits, 1000), 1000) << "no more than is usual";
}

// Who takes the core for a slice is no rank that was waited for: to spin costs less than to give it away.
TEST(SpinBudget, GrowsWhereStrangersTakeTheCore) {
  SpinBudget budget(200, 4000, 20'000, 4000);
  Waits waits(budget);
  waits.wait(1);
  waits.wait(1);
  waits.wait(1);
  ASSERT_EQ(budget.polls(), 200);
  for (const int expected : {800, 3200, 12'800, 20'000, 20'000}) {
    waits.wait(2, 2 * SpinBudget::kSlice);
    EXPECT_EQ(budget.polls(), expected);
  }
  waits.wait(1);
  EXPECT_EQ(budget.polls(), 5000) << "a rank, after all";
  waits_until_it_grows(budget, waits, 100'000);
  EXPECT_EQ(budget.polls(), 4000) << "the strangers have gone";
}

// A rank that spins as little as that is not seen to share its core: that alone must not make it spin long
// again.
TEST(SpinBudget, TriesLessOftenWhatProvedWrong) {
  SpinBudget budget(30, 4000);
  Waits waits(budget);
  int before = 0;
  for (int attempt = 0; attempt < 5; ++attempt) {
    waits.wait(1);
    const int calm = waits_until_it_grows(budget, waits, 100'000);
    EXPECT_GT(calm, before);
    before = calm;
  }
}

TEST(SpinBudget, OneThatIsSeldomDisturbedStaysLong) {
  SpinBudget budget(30, 4000);
  Waits waits(budget);
  for (int wait = 0; wait < 100'000; ++wait) {
    waits.wait(wait % 1000 == 999 ? 1 : 0);
    ASSERT_GE(budget.polls(), 1000);
  }
}

TEST(SpinBudget, WhereTheSystemDoesNotTellItStays) {
  SpinBudget budget(30, 4000);
  for (int wait = 0; wait < 100; ++wait) {
    budget.resume(-1, std::chrono::seconds(0));
    budget.spent(wait);
    budget.resume(-1, std::chrono::seconds(1));
    budget.spent(-1);
    budget.resume(wait + 1, std::chrono::seconds(wait));
  }
  EXPECT_EQ(budget.polls(), 4000);
}

TEST(SpinBudget, WhatTheUserSetStays) {
  for (const int set : {0, 7}) {
    SpinBudget budget(set, set);
    Waits waits(budget);
    waits.wait(1);
    waits.wait(1, 2 * SpinBudget::kSlice);
    waits_until_it_grows(budget, waits, 1000);
    EXPECT_EQ(budget.polls(), set);
  }
}

// How a child ends that waits longer than it spins and may not ask the system who took its core.
int end_of_a_wait_without_asking(const SpinBudget& spins) {
  const pid_t child = fork();
  if (child == 0) {
    sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getrusage, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program{std::size(rules), rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
      _exit(2);
    WaitPolicy policy;
    policy.spins = spins;
    int left = spins.polls() + 3;
    const auto poll = [&](bool* done) -> Status {
      *done = --left == 0;
      return {};
    };
    _exit(wait_until_done(policy, poll, [](Patience&) { return Status(); }).ok() ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

TEST(SpinBudget, WhatCannotChangeAsksTheSystemNothing) {
  EXPECT_EQ(end_of_a_wait_without_asking(default_spins(true, false, false)), 128 + SIGSYS);
  EXPECT_EQ(end_of_a_wait_without_asking(default_spins(true, true, true)), 128 + SIGSYS);
  EXPECT_EQ(end_of_a_wait_without_asking(default_spins(false, false, false)), 0);
  EXPECT_EQ(end_of_a_wait_without_asking(default_spins(false, true, true)), 0);
  EXPECT_EQ(end_of_a_wait_without_asking(SpinBudget(7, 7)), 0);
}

TEST(SpinBudget, BeginsWhereItIsTold) {
  SpinBudget budget(30, 4000, 4000, 30);
  EXPECT_EQ(budget.polls(), 30);
  Waits waits(budget);
  waits_until_it_grows(budget, waits, 100'000);
  EXPECT_EQ(budget.polls(), 60);
  // A network is polled shortly until that proves to disturb nobody.
  EXPECT_LT(default_spins(true, true, true).polls(), default_spins(true, false, false).polls());
}

// That what the budget is told of is what it is about.
TEST(SpinBudget, TheSystemCountsWhatOthersTake) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  int core = 0;
  while (!CPU_ISSET(core, &before))
    ++core;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  std::atomic<bool> over{false};
  std::thread other([&] {  // on the same core
    while (!over) {
    }
  });
  const long switches = involuntary_switches();
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (involuntary_switches() == switches && std::chrono::steady_clock::now() < until) {
  }
  EXPECT_GT(involuntary_switches(), switches);
  over = true;
  other.join();
  EXPECT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
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

// After some rests, which are over sooner than the host has looked at everything.
TEST(Waiter, TheHostIsDrivenOnceSpinningIsOver) {
  WaitPolicy policy;
  policy.spins = SpinBudget(10, 10);
  int driven = 0;
  int polls = 0;
  policy.host_progress = [&] { ++driven; };
  const Status status = wait_until_done(
      policy,
      [&](bool* done) -> Status {
        *done = ++polls == 25;
        return {};
      },
      [](Patience&) { return Status(); });
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(driven, 11);
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
