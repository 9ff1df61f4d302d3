#include "comm/progress_thread.hpp"

#include <sched.h>

#include <chrono>
#include <utility>

#include "base/threads.hpp"
#include "engine/waiter.hpp"

namespace heddle {

ProgressThread::ProgressThread(Work work, int core) : work_(std::move(work)) {
  const SignalsBlocked blocked;
  thread_ = std::thread([this, core] { run(core); });
}

ProgressThread::~ProgressThread() {
  over_.store(true);
  wake();
  thread_.join();
}

void ProgressThread::wake() {
  {
    const std::lock_guard lock(bell_);
    woken_ = true;
  }
  rung_.notify_one();
}

void ProgressThread::look_soon() {
  constexpr int kLooks = 32;
  if (looks_.exchange(kLooks, std::memory_order_relaxed) != 0) return;
  // Whoever is about to sleep has the lock.
  { const std::lock_guard lock(bell_); }
  rung_.notify_one();
}

// Until there is a step to take; false: never again.
bool ProgressThread::rest() {
  constexpr std::chrono::milliseconds kBetweenLooks{3};
  std::unique_lock lock(bell_);
  rung_.wait(lock, [this] { return woken_ || looks_.load(std::memory_order_relaxed) > 0; });
  while (!woken_) {
    const unsigned before = turns_.load(std::memory_order_relaxed);
    const bool called = rung_.wait_for(lock, kBetweenLooks, [this] { return woken_; });
    if (!called && turns_.load(std::memory_order_relaxed) == before) {
      looks_.fetch_sub(1, std::memory_order_relaxed);
      break;
    }
  }
  woken_ = false;
  return !over_.load(std::memory_order_relaxed);
}

void ProgressThread::run(int core) {
  pin_to_core(core);
  ask_for_short_turns();
  while (rest()) {
    std::unique_lock lock(mutex_);
    while (!over_.load(std::memory_order_relaxed) && work_.step()) {
      const int descriptor = work_.arm ? work_.arm() : -1;
      lock.unlock();
      if (descriptor >= 0) sleep_until_readable(descriptor, work_.longest_sleep);
      // A mutex that is taken again at once would keep the caller out for long.
      do {
        sched_yield();
      } while (wanted_.load(std::memory_order_relaxed) > 0);
      lock.lock();
    }
  }
}

void Turn::enter() {
  thread_->wanted_.fetch_add(1, std::memory_order_relaxed);
  thread_->mutex_.lock();
  thread_->wanted_.fetch_sub(1, std::memory_order_relaxed);
  asked_ = nullptr;
}

void Turn::leave() {
  asked_ = thread_;
  thread_->turns_.fetch_add(1, std::memory_order_relaxed);
  thread_->mutex_.unlock();
}

int spare_core(const std::vector<CoreClaim>& claims, int member) {
  auto ranks = static_cast<int>(claims.size());
  for (const CoreClaim& claim : claims)
    ranks = std::max(ranks, claim.launched);
  if (cores_of(claims) < ranks + member + 1) return -1;
  // Of the cores that any of them may use the last ones: launchers hand out the first.
  int skip = member;
  for (int core = 1023; core >= 0; --core) {
    const auto word = static_cast<std::size_t>(core / 64);
    bool usable = false;
    for (const CoreClaim& claim : claims)
      usable = usable || (claim.mask[word] >> (core % 64) & 1) != 0;
    if (usable && skip-- == 0) return core;
  }
  return -1;
}

std::vector<int> spare_cores(const std::vector<CoreClaim>& claims, int member, bool one_taken,
                             std::size_t most) {
  const auto ranks = static_cast<int>(claims.size());
  std::vector<int> cores;
  for (int turn = one_taken ? member + ranks : member; cores.size() < most; turn += ranks) {
    const int core = spare_core(claims, turn);
    if (core < 0) break;
    cores.push_back(core);
  }
  return cores;
}

}  // namespace heddle
