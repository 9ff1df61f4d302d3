#include "base/log.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <thread>
#include <vector>

namespace heddle {
namespace {

template <typename Body>
std::string stderr_of(Body body) {
  testing::internal::CaptureStderr();
  body();
  return testing::internal::GetCapturedStderr();
}

TEST(Log, LineHasRankLevelAndText) {
  EXPECT_EQ(stderr_of([] { Log(LogLevel::info, 3).info("hello"); }), "heddle[3] info: hello\n");
  EXPECT_EQ(stderr_of([] { Log(LogLevel::info).error("hello"); }), "heddle error: hello\n");
}

TEST(Log, LevelsFilter) {
  const auto all = [](LogLevel level) {
    return stderr_of([level] {
      const Log log(level);
      log.error("e");
      log.warn("w");
      log.info("i");
      log.debug("d");
      log.line(LogLevel::none, "never");
    });
  };
  EXPECT_EQ(all(LogLevel::none), "");
  EXPECT_EQ(all(LogLevel::error), "heddle error: e\n");
  EXPECT_EQ(all(LogLevel::warn), "heddle error: e\nheddle warning: w\n");
  EXPECT_EQ(all(LogLevel::debug), "heddle error: e\nheddle warning: w\nheddle info: i\nheddle debug: d\n");
}

TEST(Log, OneEventIsOneLine) {
  EXPECT_EQ(stderr_of([] { Log().warn("a\nb"); }), "heddle warning: a b\n");
}

TEST(Log, LeavesErrnoAlone) {
  stderr_of([] {
    errno = EDOM;
    Log().warn("x");
    EXPECT_EQ(errno, EDOM);
  });
}

// Standard error becomes a pipe that nobody reads.
void close_the_other_end() {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  ::dup2(ends[1], STDERR_FILENO);
}

TEST(LogDeathTest, NobodyIsKilledByALineThatNobodyReads) {
  EXPECT_EXIT(
      {
        close_the_other_end();
        Log().warn("x");
        sigset_t pending;
        ::sigpending(&pending);
        ::_exit(sigismember(&pending, SIGPIPE) == 0 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(LogDeathTest, ASignalOfTheProgramsOwnStays) {
  EXPECT_EXIT(
      {
        close_the_other_end();
        sigset_t pipe;
        sigemptyset(&pipe);
        sigaddset(&pipe, SIGPIPE);
        ::pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
        ::raise(SIGPIPE);
        Log().warn("x");
        sigset_t pending;
        ::sigpending(&pending);
        ::_exit(sigismember(&pending, SIGPIPE) == 1 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(Log, LinesOfThreadsDoNotMix) {
  constexpr int kThreads = 4;
  constexpr int kLines = 50;
  const std::string text(200, 'x');
  const std::string out = stderr_of([&] {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < kLines; ++i)
          Log(LogLevel::warn, t).warn(text);
      });
    }
    for (std::thread& thread : threads)
      thread.join();
  });
  std::size_t lines = 0;
  for (std::size_t at = 0; at < out.size();) {
    const std::size_t end = out.find('\n', at);
    ASSERT_NE(end, std::string::npos);
    EXPECT_EQ(end - at, std::string("heddle[0] warning: ").size() + text.size());
    ++lines;
    at = end + 1;
  }
  EXPECT_EQ(lines, static_cast<std::size_t>(kThreads * kLines));
}

}  // namespace
}  // namespace heddle
