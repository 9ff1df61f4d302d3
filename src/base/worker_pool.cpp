#include "base/worker_pool.hpp"

#include <system_error>
#include <utility>

#include "base/threads.hpp"

namespace heddle {

WorkerPool::~WorkerPool() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  awake_.notify_all();
  for (std::thread& thread : threads_)
    thread.join();
}

// A system that has no thread to give is no failure: the others do the work.
void WorkerPool::make_threads() {
  made_ = true;
  const SignalsBlocked blocked;
  threads_.reserve(cores_.size());
  try {
    for (const int core : cores_)
      threads_.emplace_back([this, core, number = threads_.size() + 1] { serve(number, core); });
  } catch (const std::system_error&) {
  }
}

void WorkerPool::run(const std::function<void(std::size_t)>& work) {
  if (!made_) make_threads();
  {
    const std::lock_guard lock(mutex_);
    work_ = &work;
    (void)std::fegetenv(&environment_);
    ++round_;
  }
  awake_.notify_all();
  attempt(work, 0);
  std::unique_lock lock(mutex_);
  work_ = nullptr;
  idle_.wait(lock, [this] { return busy_ == 0; });
  if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
}

void WorkerPool::attempt(const std::function<void(std::size_t)>& work, std::size_t number) {
  try {
    work(number);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!thrown_) thrown_ = std::current_exception();
  }
}

void WorkerPool::serve(std::size_t number, int core) {
  pin_to_core(core);
  std::uint64_t served = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    awake_.wait(lock, [&] { return over_ || (work_ != nullptr && round_ != served); });
    if (over_) return;
    served = round_;
    const std::function<void(std::size_t)>& work = *work_;
    (void)std::fesetenv(&environment_);
    ++busy_;
    lock.unlock();
    attempt(work, number);
    lock.lock();
    if (--busy_ == 0) idle_.notify_one();
  }
}

}  // namespace heddle
