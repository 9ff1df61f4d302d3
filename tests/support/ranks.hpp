// Ranks as threads of the test process, with a watchdog: a hang says who is stuck, and where, and ends the
// test.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/status.hpp"

namespace heddle::test {

// Slow builds (sanitizers, debug) get more time and do fewer rounds.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSlowBuild = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
inline constexpr bool kSlowBuild = true;
#else
inline constexpr bool kSlowBuild = false;
#endif
#else
inline constexpr bool kSlowBuild = false;
#endif
constexpr int rounds(int normally) {
  return kSlowBuild ? (normally + 7) / 8 : normally;
}

// What a rank's thread knows of itself.
class Rank {
 public:
  int rank = 0;
  int size = 1;

  // Where the rank is, for the watchdog. `what` is a literal.
  void at(const char* what, std::uint64_t number = 0) {
    what_.store(what, std::memory_order_relaxed);
    number_.store(number, std::memory_order_relaxed);
  }

  void finish() { finished_.store(true); }

  // Polls until `done()`; gives the core away between polls.
  template <typename Done>
  void until(Done done) {
    while (!done())
      sched_yield();
  }

 private:
  friend class Watchdog;
  std::atomic<const char*> what_{"start"};
  std::atomic<std::uint64_t> number_{0};
  std::atomic<bool> finished_{false};
};

// Aborts the process when the ranks are not all finished `limit` after its birth, naming those that are not.
// After a failed assertion there is nothing to wait for: the failed rank is missed by the others.
class Watchdog {
 public:
  Watchdog(const std::vector<std::unique_ptr<Rank>>& ranks, std::chrono::seconds limit)
      : ranks_(ranks), limit_(limit), thread_([this] { watch(); }) {}
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

 private:
  void watch() {
    std::unique_lock lock(mutex_);
    int failed_for = 0;
    for (int second = 0; second < limit_.count() && failed_for < 5; ++second) {
      if (changed_.wait_for(lock, std::chrono::seconds(1), [this] { return over_; })) return;
      failed_for += ::testing::Test::HasFatalFailure() ? 1 : 0;
    }
    std::fprintf(stderr, "hang%s: these ranks are not through:\n", failed_for > 0 ? " after a failure" : "");
    for (const auto& r : ranks_) {
      if (r->finished_.load()) continue;
      std::fprintf(stderr, "  rank %d of %d: %s %llu\n", r->rank, r->size, r->what_.load(),
                   static_cast<unsigned long long>(r->number_.load()));
    }
    std::abort();
  }

  const std::vector<std::unique_ptr<Rank>>& ranks_;
  std::chrono::seconds limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

// Runs `body(Rank&)` once for each rank, in threads of their own, and returns when all are through.
template <typename Body>
void run_ranks(int size, Body body,
               std::chrono::seconds limit = std::chrono::seconds(kSlowBuild ? 240 : 60)) {
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int r = 0; r < size; ++r) {
    ranks.push_back(std::make_unique<Rank>());
    ranks.back()->rank = r;
    ranks.back()->size = size;
  }
  const Watchdog watchdog(ranks, limit);
  std::vector<std::thread> threads;
  for (const auto& r : ranks) {
    threads.emplace_back([&body, me = r.get()] {
      body(*me);
      me->finish();
    });
  }
  for (std::thread& t : threads)
    t.join();
}

// An allgather among threads, in the form a Bootstrap wants. Outlives the functions made from it. An exchange
// that lacks a rank fails at the deadline.
class ThreadAllgather {
 public:
  explicit ThreadAllgather(int size, std::chrono::milliseconds deadline = std::chrono::seconds(60))
      : size_(static_cast<std::size_t>(size)), deadline_(deadline) {}

  std::function<Status(const void*, void*, std::size_t)> of(int rank) {
    return [this, rank](const void* mine, void* all, std::size_t bytes) {
      return exchange(static_cast<std::size_t>(rank), mine, all, bytes);
    };
  }

 private:
  Status exchange(std::size_t rank, const void* mine, void* all, std::size_t bytes) {
    std::unique_lock lock(mutex_);
    const auto wait_until = [&](auto condition) { return changed_.wait_for(lock, deadline_, condition); };
    // The round before must have been read by everybody.
    if (!wait_until([&] { return !leaving_; })) return late();
    if (gathered_.empty()) gathered_.resize(size_ * bytes + 1);
    if (gathered_.size() != size_ * bytes + 1)
      return Status(Code::internal, "ranks gather different lengths");
    std::memcpy(gathered_.data() + rank * bytes, mine, bytes);
    if (++present_ == size_) {
      leaving_ = true;
      changed_.notify_all();
    } else if (!wait_until([&] { return leaving_; })) {
      return late();
    }
    std::memcpy(all, gathered_.data(), size_ * bytes);
    if (--present_ == 0) {
      leaving_ = false;
      gathered_.clear();
      changed_.notify_all();
    }
    return {};
  }
  static Status late() { return Status(Code::timeout, "a rank did not come to the allgather"); }

  std::size_t size_;
  std::chrono::milliseconds deadline_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::byte> gathered_;
  std::size_t present_ = 0;
  bool leaving_ = false;
};

}  // namespace heddle::test
