// What the ranks of a node do on their GPUs in one allreduce of sparse vectors whose result is sparse: steps as in device_entries.hpp. Each rank merges everybody's
// entries, in the order of ranks, one rank's after the other's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.hpp"
#include "base/status.hpp"
#include "comm/device_entries.hpp"

namespace heddle {

struct MergeJob {
  gpu::Entries in;
  DType type;
  std::size_t dimension;
  gpu::Room
      out;  // where the result is to be if there is room; capacity 0: nowhere yet. Overlaps nothing of `in`
};

class MergedSum final : public EntriesWork {
 public:
  MergedSum(const EntriesWorker& worker, const MergeJob& job, std::uint64_t asked)
      : EntriesWork(worker, job.type, asked),
        job_(job),
        lists_(static_cast<std::size_t>(worker.worker.size)) {}

  // After the call: whether every rank has its result, the same on all. Where not, a list breaks its contract, or there was no memory for the work.
  bool is_complete() const { return unfinished_ == 0; }
  // Where it lies: in `out`, or until the next call in memory of the link's.
  bool is_placed() const { return result_.indices == job_.out.indices; }
  gpu::Entries result() const {
    return {result_.indices, result_.values, worker_.sparse->merged(), result_.wide};
  }

  std::span<std::uint64_t> later_words(std::size_t k) override;

 protected:
  Result<gpu::Entries> make() override { return job_.in; }
  std::size_t number() const override { return job_.in.count; }
  bool makes() const override { return false; }
  Status open() override;
  Status use(int rank, const gpu::Entries& entries, std::size_t first) override;
  Status close() override;

 private:
  std::size_t list_bytes(std::size_t count, bool wide) const;
  Result<gpu::Room> room(int rank, bool wide);
  Status merge_all(const gpu::Room& to);
  Status merge_beside();

  const MergeJob job_;
  std::vector<gpu::Entries> lists_;  // of all ranks
  gpu::Room result_;
  bool has_memory_ = true;
  std::uint64_t unfinished_ = 0;
};

}  // namespace heddle
