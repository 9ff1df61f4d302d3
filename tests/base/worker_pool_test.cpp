#include "base/worker_pool.hpp"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cfenv>
#include <chrono>
#include <csignal>
#include <fstream>
#include <set>
#include <stdexcept>
#include <string>

namespace heddle {
namespace {

std::size_t threads_of_process() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("Threads:", 0) == 0) return std::stoul(line.substr(8));
  return 0;
}

// Waits until each of `threads` has come: run() does not wait for those that sleep.
void meet(WorkerPool& pool, std::size_t threads, std::set<std::size_t>& numbers) {
  std::mutex mutex;
  std::atomic<std::size_t> here{0};
  pool.run([&](std::size_t number) {
    {
      const std::lock_guard lock(mutex);
      numbers.insert(number);
    }
    ++here;
    while (here.load() < threads)
      std::this_thread::yield();
  });
}

TEST(WorkerPool, RunsInEveryThreadAtOnceAgainAndAgain) {
  for (std::size_t workers = 0; workers < 4; ++workers) {
    WorkerPool pool(std::vector<int>(workers, -1));
    EXPECT_EQ(pool.most_threads(), workers + 1);
    for (int round = 0; round < 20; ++round) {
      std::set<std::size_t> numbers;
      meet(pool, workers + 1, numbers);
      EXPECT_EQ(numbers.size(), workers + 1);
      EXPECT_EQ(*numbers.rbegin(), workers);
    }
  }
}

TEST(WorkerPool, AllRoundAsTheCallerDoes) {
  WorkerPool pool({-1, -1});
  std::set<std::size_t> numbers;
  meet(pool, 3, numbers);
  for (const int wanted : {FE_UPWARD, FE_TONEAREST}) {
    ASSERT_EQ(std::fesetround(wanted), 0);
    std::atomic<std::size_t> here{0};
    std::atomic<std::size_t> alike{0};
    pool.run([&](std::size_t) {
      if (std::fegetround() == wanted) ++alike;
      ++here;
      while (here.load() < 3)
        std::this_thread::yield();
    });
    EXPECT_EQ(alike.load(), 3U);
  }
}

TEST(WorkerPool, HasNoThreadBeforeTheFirstRun) {
  const std::size_t before = threads_of_process();
  WorkerPool pool({-1, -1});
  EXPECT_EQ(threads_of_process(), before);
  pool.run([](std::size_t) {});
  EXPECT_EQ(threads_of_process(), before + 2);
}

// Nobody is late to work that is over, and whatever was written in a run is seen after it.
TEST(WorkerPool, ShortRuns) {
  WorkerPool pool({-1, -1, -1});
  for (std::size_t round = 0; round < 3000; ++round) {
    std::atomic<std::size_t> next{0};
    std::vector<std::size_t> done(8, 0);
    pool.run([&](std::size_t) {
      for (std::size_t k = next++; k < done.size(); k = next++)
        done[k] = round + 1;
    });
    ASSERT_EQ(done, std::vector<std::size_t>(8, round + 1));
  }
}

TEST(WorkerPool, NobodyComesToWorkThatIsOver) {
  WorkerPool pool({-1, -1});
  std::atomic<bool> open{false};
  std::atomic<int> late{0};
  const std::function<void(std::size_t)> work = [&](std::size_t number) {
    if (number > 0 && !open) ++late;
  };
  for (int round = 0; round < 200; ++round) {
    open = true;
    pool.run(work);
    open = false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  EXPECT_EQ(late, 0);
}

TEST(WorkerPool, TakesNoSignals) {
  WorkerPool pool({-1});
  std::atomic<int> blocked{0};
  std::atomic<int> here{0};
  pool.run([&](std::size_t number) {
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    if (number == 1 && sigismember(&mask, SIGTERM) == 1 && sigismember(&mask, SIGALRM) == 1) ++blocked;
    ++here;
    while (here.load() < 2)
      std::this_thread::yield();
  });
  EXPECT_EQ(blocked, 1);
  sigset_t mine;
  pthread_sigmask(SIG_SETMASK, nullptr, &mine);
  EXPECT_EQ(sigismember(&mine, SIGTERM), 0);
}

TEST(WorkerPool, ThrowsWhatAThreadThrewAndGoesOn) {
  WorkerPool pool({-1, -1});
  for (const std::size_t thrower : {0U, 1U, 2U}) {
    std::atomic<std::size_t> here{0};
    EXPECT_THROW(pool.run([&](std::size_t number) {
      ++here;
      while (here.load() < 3)
        std::this_thread::yield();
      if (number == thrower) throw std::runtime_error("no");
    }),
                 std::runtime_error);
    std::set<std::size_t> numbers;
    meet(pool, 3, numbers);
    EXPECT_EQ(numbers.size(), 3U);
  }
}

}  // namespace
}  // namespace heddle
