// What the ranks of a node do on their GPUs in one allreduce of sparse vectors whose result is sparse: steps
// as in device_entries.hpp. Each rank merges everybody's entries, in the order of ranks, one rank's after the
// other's; where they share a context the first one does it for all that have room for the result. Who learns
// that it had too little merges once more, by itself, in one more step. Into a dense vector minimum and
// maximum go the same way, and of ranks that share a context sums as well.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.hpp"
#include "base/status.hpp"
#include "device/device_entries.hpp"

namespace heddle {

struct MergeJob {
  gpu::Entries in;
  DType type;
  Op op;
  std::size_t dimension;
  gpu::Room
      out;  // where the result is to be if there is room; capacity 0: nowhere yet. Overlaps nothing of `in`
};

class MergedEntries : public EntriesWork {
 public:
  MergedEntries(const EntriesWorker& worker, const MergeJob& job, std::uint64_t asked)
      : EntriesWork(worker, job.type, asked),
        job_(job),
        lists_(static_cast<std::size_t>(worker.worker.size)) {}

  std::size_t steps() const override { return EntriesWork::steps() + outcome_[kAgain]; }
  Status step(std::size_t k) override;
  // Where not, a list breaks its contract, or there was no memory for the work.
  bool is_complete() const override { return outcome_[kUnfinished] == 0; }
  // Where it lies: in `out`, or until the next call in memory of the link's.
  bool is_placed() const { return result_.indices == job_.out.indices; }
  gpu::Entries result() const {
    const std::uint64_t count = is_placed() ? outcome_[kCount] : worker_.sparse->merged();
    return {result_.indices, result_.values, count, result_.wide};
  }

  std::span<std::uint64_t> later_words(std::size_t k) override;

 protected:
  Result<gpu::Entries> make() override { return job_.in; }
  std::size_t number() const override { return job_.in.count; }
  bool makes() const override { return false; }
  bool works() const override { return !has_room() || !serves().empty(); }
  gpu::Room room_given() const override { return job_.out; }
  Status open() override;
  Status use(int rank, const gpu::Entries& entries, std::size_t first) override;
  Status close() override;
  // Given after the merges whose result is to be `from`.
  virtual Status after_merges(const gpu::Room& /*from*/) { return {}; }

  const MergeJob job_;

 private:
  // What the ranks tell in the last meetings: whether one cannot go on; whether one has too little room; and
  // how many entries there are.
  enum Outcome : std::uint8_t { kUnfinished, kAgain, kCount, kOutcome };

  bool has_room() const { return job_.out.capacity > 0; }
  std::vector<gpu::Room> serves() const;
  std::size_t list_bytes(std::size_t count, bool wide) const;
  // Where indices of 32 bits do not reach.
  bool is_long() const { return std::uint64_t{job_.dimension} > std::uint64_t{1} << 32; }
  Result<gpu::Room> room(int rank, bool wide);
  Status merge_all(std::span<const gpu::Room> to);
  Status merge_beside();

  std::vector<gpu::Entries> lists_;  // of all ranks
  gpu::Room result_;
  bool has_memory_ = true;
  bool merged_ = false;  // by this rank
  std::array<std::uint64_t, kOutcome> outcome_{};
};

// Into a dense vector, which is 0 where no rank has an entry: for minimum and maximum, in which that 0 does
// not count where one has; and for sums, which begin with +0. Ranks that share a context leave it to the
// first one, which writes the vectors of all. Where a list is broken they stay as they were.
class SpreadEntries final : public MergedEntries {
 public:
  SpreadEntries(const EntriesWorker& worker, const gpu::Entries& in, DType type, Op op, void* out,
                std::size_t dimension, std::uint64_t asked)
      : MergedEntries(worker, {in, type, op, dimension, {}}, asked), out_(out) {}

 protected:
  bool works() const override { return !worker_.direct || worker_.worker.rank == 0; }
  gpu::Room room_given() const override { return {out_, nullptr, 0, false}; }
  Status after_merges(const gpu::Room& from) override;

 private:
  void* const out_;
};

}  // namespace heddle
