// Sums of sparse streams, and of vectors that are mostly zeros by their entries: the blocking ones of a
// communicator.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "base/recently_used.hpp"
#include "base/status.hpp"
#include "comm/communicator.hpp"
#include "comm/node_memory.hpp"
#include "comm/request_impl.hpp"
#include "comm/sparse_planner.hpp"
#include "sparse/agreement.hpp"
#include "sparse/bitmap_exchange.hpp"
#include "sparse/execution.hpp"
#include "sparse/profile.hpp"
#include "sparse/threaded_fold.hpp"

namespace heddle {

// The small dense allreduce in which the ranks agree.
Job agreement_job(Agreement& agreement, FoldKind kind = kSparseAgreement);

// What delivering throws or returns is this rank's alone: the collective is over.
Status deliver(const SparseJob& job, std::span<const SparseView> parts);

inline std::uint64_t count_of(std::span<const SparseView> parts) {
  std::uint64_t count = 0;
  for (const SparseView& part : parts)
    count += part.count;
  return count;
}

// A part of CommunicatorImpl, in whose turn every call is.
class SparseSums {
 public:
  explicit SparseSums(CommunicatorImpl& comm);

  // In the agreement all ranks meet.
  Status exchange(const SparseJob& job);
  // False: nothing has happened, since it would not pay. The same on all ranks.
  Result<bool> exchange_entries(const MostlyZeroJob& job);
  // Then the whole vectors are summed.
  Status sum_whole(const MostlyZeroJob& job);

  // Once it is known which cores other threads take.
  void find_fold_cores();

  // For requests.
  SparsePlanner& planner() { return planner_; }
  ThreadedFold* fold_threads() { return fold_threads_.get(); }

 private:
  Status learn_node_memory();
  Result<Profile> profile_for(const SparseJob& job);
  // From a result.
  void learn(std::span<const SparseView> parts, std::uint64_t total, std::uint64_t dimension);
  StreamExecution& streams_of(const Choice& choice);
  Status run_streams(const SparseJob& job, const Agreement& agreement, const Profile& profile,
                     const SparseChoice& choice);
  Status run_dense(const SparseJob& job, const Agreement& agreement);
  Status look_through(const SparseJob& job);
  bool may_be_bitmaps(const SparseJob& job) const;
  Status run_bitmaps(const SparseJob& job, const Agreement& agreement, bool* served);
  Result<bool> looks_sparse(const MostlyZeroJob& job);
  Status take_entries(const MostlyZeroJob& job, SparseView* view);

  CommunicatorImpl& comm_;
  SparsePlanner planner_;
  // Before the streams that lie in it. Set once all ranks, on one node, are known to reach each other's
  // memory.
  std::unique_ptr<HeapMemory> node_memory_;
  bool node_memory_known_ = false;
  std::unique_ptr<BitmapExchange> bitmaps_;     // made when it may serve
  Storage unplaced_;                            // its result, where the caller has no room to write to
  std::unique_ptr<ThreadedFold> fold_threads_;  // null: no core is left for them
  std::unique_ptr<Storage> entries_;            // of vectors of mostly zeros
  RecentlyUsed<const Schedule*, std::unique_ptr<StreamExecution>> streams_{16};
  std::map<std::uint64_t, Profile>
      profiles_;  // by dimension, from blocking collectives, whose order is the same everywhere
};

}  // namespace heddle
