// The thread that moves what callers leave behind: when it steps in, and when it keeps away.
#include "comm/progress_thread.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

namespace heddle {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kLooks = 32;  // after look_soon()

class Stepping {
 public:
  Stepping() : thread_({[this] { return ++steps, false; }, nullptr, {}}, -1), face_(&thread_) {
    // It looks once when it is made.
    EXPECT_TRUE(reaches(1));
  }
  bool reaches(int count) const {
    const auto end = steady_clock::now() + milliseconds(10'000);
    while (steps < count && steady_clock::now() < end)
      std::this_thread::sleep_for(milliseconds(1));
    return steps >= count;
  }
  // Calls with a turn each, a fifth of a millisecond apart. For how many looks, three milliseconds each, this
  // thread itself was away.
  int call_for(milliseconds limit) {
    int away = 0;
    auto last = steady_clock::now();
    for (const auto end = last + limit; last < end;) {
      { const Turn turn(face_); }
      const auto now = steady_clock::now();
      if (now - last > milliseconds(2)) away += 1 + static_cast<int>((now - last) / milliseconds(3));
      last = now;
      while (steady_clock::now() - last < microseconds(200)) {
      }
    }
    return away;
  }

  std::atomic<int> steps{0};
  ProgressThread& thread() { return thread_; }

 private:
  ProgressThread thread_;
  ProgressThread* face_;
};

TEST(ProgressThread, LeavesACallerAloneThatComesBack) {
  Stepping stepping;
  stepping.thread().look_soon();
  const int away = stepping.call_for(milliseconds(300));
  const int before = stepping.steps;
  EXPECT_LE(before, 1 + away) << "a look while calls came";
  // Nobody comes any more. On a busy machine this thread may have been away for so long that all looks were
  // taken.
  EXPECT_TRUE(stepping.reaches(std::min(before + 1, 1 + kLooks)));
}

TEST(ProgressThread, LooksAFewTimesAndSleepsThen) {
  Stepping stepping;
  stepping.thread().look_soon();
  EXPECT_TRUE(stepping.reaches(1 + kLooks));
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(stepping.steps, 1 + kLooks);
}

TEST(ProgressThread, ComesAtOnceWhenItIsWoken) {
  Stepping stepping;
  for (int times = 0; times < 5; ++times) {
    const int before = stepping.steps;
    stepping.thread().wake();
    (void)stepping.call_for(milliseconds(50));
    EXPECT_TRUE(stepping.reaches(before + 1)) << "although a caller comes all the time";
  }
}

}  // namespace
}  // namespace heddle
