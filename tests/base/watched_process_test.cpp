// Processes that end, and others that get their numbers.
#include "base/watched_process.hpp"

#include <gtest/gtest.h>
#include <linux/sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>

namespace heddle::test {
namespace {

// A process that runs until it is told to end.
class Child {
 public:
  // With that number, if it is not 0.
  explicit Child(pid_t number = 0) {
    EXPECT_EQ(pipe(hold_), 0);
    pid_ = number == 0 ? fork() : fork_as(number);
    error_ = pid_ < 0 ? errno : 0;
    if (pid_ == 0) {
      close(hold_[1]);
      char c = 0;
      _exit(read(hold_[0], &c, 1) == 0 ? 0 : 1);
    }
    close(hold_[0]);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ < 0) return;
    end();
    waitpid(pid_, nullptr, 0);
  }

  pid_t pid() const { return pid_; }
  int error() const { return error_; }  // 0: it runs
  // It has ended, but its number is its own.
  void end() {
    if (!ended_) close(hold_[1]);
    ended_ = true;
    siginfo_t info;
    waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
  }

 private:
  // Containers' rules may forbid it.
  static pid_t fork_as(pid_t number) {
    clone_args args{};
    args.exit_signal = SIGCHLD;
    args.set_tid = reinterpret_cast<std::uint64_t>(&number);
    args.set_tid_size = 1;
    return static_cast<pid_t>(syscall(SYS_clone3, &args, sizeof args));
  }

  int hold_[2] = {-1, -1};
  pid_t pid_ = -1;
  int error_ = 0;
  bool ended_ = false;
};

TEST(WatchedProcess, ThisOneRuns) {
  EXPECT_FALSE(WatchedProcess(getpid()).is_gone());
}

// Or the others take it for another process with its number.
TEST(WatchedProcess, AllThreadsKnowTheSameStart) {
  const std::uint64_t started = start_of_process(getpid());
  EXPECT_NE(started, 0U);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the kernel tells starts 10 ms apart
  std::thread([&] { EXPECT_EQ(start_of_process(getpid()), started); }).join();
  const Child child;
  EXPECT_GE(start_of_process(child.pid()), started);
}

TEST(WatchedProcess, OneThatEnds) {
  pid_t pid = 0;
  const auto watch = [&pid] {
    Child child;
    pid = child.pid();
    const WatchedProcess watched(pid);
    EXPECT_FALSE(watched.is_gone());
    child.end();
    EXPECT_TRUE(watched.is_gone()) << "nobody has asked for its status yet";
    return watched;
  };
  const WatchedProcess watched = watch();
  EXPECT_TRUE(watched.is_gone());
  EXPECT_TRUE(WatchedProcess(pid).is_gone()) << "it was gone when it was first looked for";
}

TEST(WatchedProcess, AnotherOneWithItsNumberIsNotIt) {
  pid_t number = 0;
  const auto watch = [&number] {
    const Child child;
    number = child.pid();
    return WatchedProcess(number);
  };
  const WatchedProcess watched = watch();
  std::this_thread::sleep_for(std::chrono::milliseconds(30));  // the kernel tells starts 10 ms apart
  const Child other(number);
  if (other.error() != 0)
    GTEST_SKIP() << "no process gets a number of our choice here: " << std::strerror(other.error());
  EXPECT_TRUE(watched.is_gone());
  EXPECT_FALSE(WatchedProcess(number).is_gone());
}

}  // namespace
}  // namespace heddle::test
