#include "base/threads.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <new>
#include <thread>
#include <vector>

namespace heddle {
namespace {

// The words of the system's sched_attr that are looked at: see sched_getattr(2).
struct Attributes {
  std::int32_t nice;
  std::uint64_t runtime;
};

Attributes attributes() {
  std::array<char, 48> raw{};
  EXPECT_EQ(syscall(SYS_sched_getattr, 0, raw.data(), raw.size(), 0), 0);
  Attributes found{};
  std::memcpy(&found.nice, raw.data() + 16, sizeof found.nice);
  std::memcpy(&found.runtime, raw.data() + 24, sizeof found.runtime);
  return found;
}

// Whether the running system is Linux `major`.`minor` or newer.
bool linux_since(int major, int minor) {
  utsname name{};
  int here_major = 0;
  int here_minor = 0;
  if (uname(&name) != 0 || std::sscanf(name.release, "%d.%d", &here_major, &here_minor) != 2) return false;
  return here_major > major || (here_major == major && here_minor >= minor);
}

TEST(Threads, ShortTurnsChangeNothingElse) {
  std::thread([] {
    ASSERT_EQ(setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 3), 0);
    ask_for_short_turns();
    EXPECT_EQ(sched_getscheduler(0), SCHED_OTHER);
    EXPECT_EQ(attributes().nice, 3);
    if (linux_since(6, 12)) {
      EXPECT_EQ(attributes().runtime, 100'000U);
    }
  }).join();
}

TEST(Threads, OtherPoliciesStay) {
  std::thread([] {
    sched_param none{};
    ASSERT_EQ(sched_setscheduler(0, SCHED_IDLE, &none), 0);
    const std::uint64_t runtime = attributes().runtime;
    ask_for_short_turns();
    EXPECT_EQ(sched_getscheduler(0), SCHED_IDLE);
    EXPECT_EQ(attributes().runtime, runtime);
  }).join();
}

TEST(Threads, SignalsStayBlockedInThreadsMadeMeanwhile) {
  std::thread thread;
  {
    const SignalsBlocked blocked;
    thread = std::thread([] {
      sigset_t mask;
      pthread_sigmask(SIG_SETMASK, nullptr, &mask);
      EXPECT_EQ(sigismember(&mask, SIGTERM), 1);
      EXPECT_EQ(sigismember(&mask, SIGALRM), 1);
    });
  }
  thread.join();
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  EXPECT_EQ(sigismember(&mask, SIGTERM), 0);
}

TEST(Threads, WhatNeedsMoreStackWorksElsewhereAndThrowsHere) {
  constexpr std::size_t kMuch = std::size_t{64} << 20;  // more than this thread has left
  const pthread_t here = pthread_self();
  pthread_t there = here;
  with_stack(kMuch, [&] { there = pthread_self(); });
  EXPECT_EQ(pthread_equal(here, there), 0);
  EXPECT_THROW(with_stack(kMuch, [] { throw std::bad_alloc(); }), std::bad_alloc);
  with_stack(1, [&] { there = pthread_self(); });
  EXPECT_NE(pthread_equal(here, there), 0);
}

// Whoever waits for work done elsewhere answers signals: a garbage collector's that stops the world, say.
TEST(Threads, WhoseWorkIsDoneElsewhereTakesSignals) {
  static std::atomic<bool> answered;
  answered = false;
  struct sigaction before {};
  struct sigaction action {};
  action.sa_handler = [](int) { answered = true; };
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  const pthread_t here = pthread_self();
  with_stack(std::size_t{64} << 20, [&] {
    pthread_kill(here, SIGUSR1);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!answered && std::chrono::steady_clock::now() < end)
      std::this_thread::yield();
    EXPECT_TRUE(answered);
  });
  sigaction(SIGUSR1, &before, nullptr);
}

// A coroutine's, of which the system knows nothing.
TEST(Threads, AStackOfTheProgramsOwnMakingIsNotCountedOn) {
  static pthread_t there;
  static ucontext_t back;
  ucontext_t coroutine;
  std::vector<char> stack(std::size_t{256} << 10);
  there = pthread_self();
  getcontext(&coroutine);
  coroutine.uc_stack.ss_sp = stack.data();
  coroutine.uc_stack.ss_size = stack.size();
  coroutine.uc_link = &back;
  makecontext(
      &coroutine, [] { with_stack(1, [] { there = pthread_self(); }); }, 0);
  ASSERT_EQ(swapcontext(&back, &coroutine), 0);
  EXPECT_EQ(pthread_equal(pthread_self(), there), 0);
}

}  // namespace
}  // namespace heddle
