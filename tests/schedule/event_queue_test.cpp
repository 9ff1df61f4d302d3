#include "schedule/event_queue.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <utility>

namespace heddle {
namespace {

// Against a map of time and order of creation, with the many equal times that a simulation has; what is
// pushed is not earlier than what was taken last.
TEST(EventQueue, GivesTheEarliestAndOfEqualOnesTheOldest) {
  std::mt19937 random(7);
  for (const int most : {1, 2, 5, 40, 300}) {
    EventQueue queue;
    std::map<std::pair<double, std::uint32_t>, std::uint32_t> expected;
    double now_ns = 0;
    std::uint32_t made = 0;
    for (int i = 0; i < 5000; ++i) {
      const bool takes =
          !expected.empty() && (static_cast<int>(expected.size()) == most || random() % 3 == 0);
      ASSERT_EQ(queue.empty(), expected.empty());
      if (takes) {
        const auto first = expected.begin();
        ASSERT_EQ(queue.next_ns(), first->first.first);
        ASSERT_EQ(queue.pop(), first->second);
        now_ns = first->first.first;
        expected.erase(first);
      } else {
        const double at_ns = now_ns + static_cast<double>(random() % 8) * 0.25;
        const auto what = static_cast<std::uint32_t>(random());
        expected[{at_ns, made++}] = what;
        queue.push(at_ns, what);
      }
    }
    while (!expected.empty()) {
      ASSERT_EQ(queue.pop(), expected.begin()->second);
      expected.erase(expected.begin());
    }
    EXPECT_TRUE(queue.empty());
  }
}

TEST(EventQueue, TakesANegativeZeroForZero) {
  EventQueue queue;
  queue.push(1, 1);
  queue.push(0, 2);
  queue.push(-0.0, 3);
  EXPECT_EQ(queue.pop(), 2U);
  EXPECT_EQ(queue.pop(), 3U);
  EXPECT_EQ(queue.pop(), 1U);
}

}  // namespace
}  // namespace heddle
