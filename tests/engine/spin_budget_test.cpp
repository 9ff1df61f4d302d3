// How long a rank spins before it gives its core away, and how it learns that.
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <thread>

#include "engine/waiter.hpp"

namespace heddle::test {
namespace {

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

}  // namespace
}  // namespace heddle::test
