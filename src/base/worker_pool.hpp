// Threads that lend a hand to one that has much to do, on cores that nobody else needs.
#pragma once

#include <cfenv>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace heddle {

class WorkerPool {
 public:
  // A thread for each of `cores`, on it where that is not -1 and the system allows it. They are made by the
  // first run(), take no signals, and sleep between runs.
  explicit WorkerPool(std::vector<int> cores) : cores_(std::move(cores)) {}
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;
  ~WorkerPool();

  // That a run may have, the caller's among them.
  std::size_t most_threads() const { return cores_.size() + 1; }

  // Calls work(i) in the caller's thread (i is 0) and at the same time in the others (1 and on), as soon as
  // they are awake: `work` shares out what there is to do, and is not called by threads that come when the
  // caller is through. Returns when all have returned; throws the first of what they threw. All have the
  // caller's floating-point environment: how is rounded, and what becomes of subnormal numbers. One caller at
  // a time.
  void run(const std::function<void(std::size_t)>& work);

 private:
  void make_threads();
  void serve(std::size_t number, int core);
  void attempt(const std::function<void(std::size_t)>& work, std::size_t number);

  std::vector<int> cores_;
  std::mutex mutex_;
  std::condition_variable awake_;
  std::condition_variable idle_;
  const std::function<void(std::size_t)>* work_ = nullptr;  // null: none, or too late for it
  std::fenv_t environment_ = {};                            // the caller's
  std::uint64_t round_ = 0;
  std::size_t busy_ = 0;  // threads that are at it, without the caller's
  std::exception_ptr thrown_;
  bool over_ = false;
  bool made_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace heddle
