#include "transports/verbs/deadlines.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "transports/network.hpp"

namespace heddle::verbs {
namespace {

using std::chrono::milliseconds;

TEST(Deadlines, TriesTogetherTakeAboutAsLong) {
  for (const int ms : {100, 500, 1000, 2000, 3000, 5000, 20'000, 600'000}) {
    const double tries = (kRetries + 1) * 4.096e-3 * std::exp2(ack_timeout(milliseconds(ms)));
    EXPECT_GE(tries, 0.7 * ms) << ms;
    EXPECT_LE(tries, 1.42 * ms) << ms;
  }
}

TEST(Deadlines, WhatDevicesKnow) {
  EXPECT_EQ(ack_timeout(NetworkOptions().verbs_timeout), 18);
  EXPECT_EQ(ack_timeout(milliseconds(0)), 1);
  EXPECT_EQ(ack_timeout(milliseconds::max()), 31);
}

// Twice what a device may take for all its tries.
TEST(Deadlines, ADeviceHasGivenUpBefore) {
  for (const int seconds : {1, 7, 60, 3600}) {
    const std::chrono::seconds silence(seconds);
    const double tries = (kRetries + 1) * 4.096e-6 * std::exp2(ack_timeout(silence));
    EXPECT_GT(gives_up_within(silence).count(), 2 * 4 * tries * 0.99) << seconds;
  }
  EXPECT_GE(gives_up_within(milliseconds(0)).count(), 10);
}

// 7 is for ever, which nobody may wait for where a receive is missing.
TEST(Deadlines, PagesTakeAsLongAsTheyTake) {
  EXPECT_EQ(receiver_retries(true), 7);
  EXPECT_LT(receiver_retries(false), 7);
}

}  // namespace
}  // namespace heddle::verbs
