// Waiting: what is called, how often, and how a wait ends.
#include "engine/waiter.hpp"

#include <gtest/gtest.h>

namespace heddle::test {
namespace {

using std::chrono::milliseconds;

Status never(bool* done) {
  *done = false;
  return {};
}

TEST(Waiter, OneRankPerCoreSpinsLong) {
  EXPECT_GT(default_spins(true), 10 * default_spins(false));
  EXPECT_GT(default_spins(false), 0);
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

TEST(Waiter, TheHostIsDrivenOnceSpinningIsOver) {
  WaitPolicy policy;
  policy.spins = 10;
  int driven = 0;
  int polls = 0;
  policy.host_progress = [&] { ++driven; };
  const Status status = wait_until_done(
      policy,
      [&](bool* done) -> Status {
        *done = ++polls == 15;
        return {};
      },
      [](Patience&) { return Status(); });
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(driven, 5);
}

TEST(Waiter, ErrorsEndIt) {
  WaitPolicy policy;
  policy.spins = 2;
  int polls = 0;
  const Status status = wait_until_done(
      policy, [&](bool*) { return ++polls < 4 ? Status() : Status(Code::peer_failed, "gone"); },
      [](Patience&) { return Status(); });
  EXPECT_EQ(status.code(), Code::peer_failed);
  EXPECT_EQ(polls, 4);
}

TEST(Waiter, TheInspectorEndsItAtTheDeadline) {
  WaitPolicy policy;
  policy.spins = 0;
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

TEST(Waiter, ZeroMeansNever) {
  WaitPolicy policy;
  policy.spins = 0;
  int looks = 0;
  const Status status = wait_until_done(policy, never, [&](Patience& patience) {
    EXPECT_FALSE(patience.warning_due());
    EXPECT_FALSE(patience.deadline_passed());
    return ++looks < 2 ? Status() : Status(Code::timeout, "enough");
  });
  EXPECT_EQ(status.code(), Code::timeout);
}

}  // namespace
}  // namespace heddle::test
