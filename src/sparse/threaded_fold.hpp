// Folding of large streams by several threads.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/dtype.hpp"
#include "base/worker_pool.hpp"
#include "sparse/storage.hpp"
#include "sparse/stream.hpp"

namespace heddle {

// Entries, of all streams together, from which on other threads are waked: below, waking them takes longer
// than they save.
inline constexpr std::size_t kThreadsFrom = std::size_t{1} << 18;

// One fold at a time.
class ThreadedFold {
 public:
  // Besides the caller's a thread for each of `cores` (WorkerPool).
  explicit ThreadedFold(std::vector<int> cores) : pool_(std::move(cores)), scratch_(pool_.most_threads()) {}

  std::size_t threads() const { return pool_.most_threads(); }
  // As fold_sparse(), and the same bits, however many threads there are: regions of the indices are folded by
  // themselves, and what becomes of an index depends on the entries there alone. Keeps memory for some ten
  // thousand entries for each thread.
  std::size_t fold(std::span<const SparseView> streams, Op op, void* indices, void* values);

 private:
  WorkerPool pool_;
  std::vector<Storage> scratch_;  // by thread
};

}  // namespace heddle
