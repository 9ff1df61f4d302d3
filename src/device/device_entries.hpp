// What the ranks of a node do on their GPUs in one allreduce of sparse vectors, or of the largest entries of
// dense ones: steps as in device_work.hpp. Each rank has its entries where the others reach them, a piece
// after the other, and each uses everybody's, in the order of ranks. Where the result is dense it is set to
// zero first, and all are added to it; where it is sparse, or the operation is another one than the sum, they
// are merged (device_merge.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.hpp"
#include "base/status.hpp"
#include "device/device_work.hpp"
#include "device/placed_residual.hpp"
#include "gpu/entries.hpp"
#include "gpu/sparse_link.hpp"

namespace heddle {

// One rank among others, and how its link reaches theirs.
struct EntriesWorker {
  Worker worker;
  gpu::SparseLink* sparse;  // may be null on a rank that cannot take part
  bool direct;              // all ranks share one context: entries are read where they lie
};

class EntriesWork : public AskedWork {
 public:
  EntriesWork(const EntriesWorker& worker, DType type, std::uint64_t asked);

  // Whether the scratch is large enough for anything.
  static bool has_room(const ScratchLayout& layout);

  std::span<std::uint64_t> words() override;
  std::span<std::uint64_t> later_words(std::size_t k) override;
  Status first() override;
  Status step(std::size_t k) override;
  std::size_t steps() const override;

  // After the call: whether every rank has its result, the same on all.
  virtual bool is_complete() const { return true; }
  // Of all ranks, and of this one.
  std::uint64_t total() const;
  std::uint64_t own() const { return own_.count; }

 protected:
  // Gives the work that makes this rank's entries, which are returned; where their number is known after the
  // next wait alone, with the largest that it can be.
  virtual Result<gpu::Entries> make() = 0;
  // After that wait.
  virtual std::size_t number() const = 0;
  virtual bool broken() const { return false; }
  // Whether make() gives work at all, of which number() and broken() are told then.
  virtual bool makes() const { return true; }

  // What is done with everybody's entries, by work that is given: before the first of them are there; with
  // those of `rank`, from its `first` on, for as long as this step takes, and where is_whole(rank) until the
  // call is over; and after the last.
  virtual Status open() { return {}; }
  virtual Status use(int rank, const gpu::Entries& entries, std::size_t first) = 0;
  virtual Status close() { return {}; }
  // What they told the others.
  gpu::Entries entries_of(int rank) const;
  // Where ranks share a context: whether this one has work to give, after the first meeting, and where others
  // may put its result.
  virtual bool works() const { return true; }
  virtual gpu::Room room_given() const { return {}; }
  gpu::Room room_of(int rank) const;
  // All of its entries are one piece.
  bool is_whole(int rank) const { return pieces_of(rank) <= 1; }

  const EntriesWorker worker_;
  const DType type_;
  // Meetings before the entries are made: for work that changes what it finds, and must not begin before all
  // can do their part.
  std::size_t lead_ = 0;

 private:
  // What a rank says of its entries, and of a result.
  struct Place {
    std::uint64_t indices = 0;  // where all share one context
    std::uint64_t values = 0;
    std::uint64_t count = 0;
    std::uint64_t wide = 0;
    std::uint64_t room_indices = 0;
    std::uint64_t room_values = 0;
    std::uint64_t room = 0;
    std::uint64_t room_wide = 0;
  };
  static constexpr std::size_t kPlaceWords = sizeof(Place) / sizeof(std::uint64_t);

  Status begin();
  void tell_place();
  Place place_of(int rank) const;
  std::size_t pieces_of(int rank) const;
  std::byte* half(int rank, std::size_t piece) const;
  // How many of `all` entries are in a piece.
  std::size_t count_in(std::size_t all, std::size_t piece) const;
  gpu::Entries part(const gpu::Entries& all, std::size_t piece) const;
  gpu::Entries given_by(int rank, std::size_t piece) const;
  Status give(std::size_t piece);
  Status take();

  const std::size_t room_;  // entries of a piece
  gpu::Entries own_;
  // What is added next: of this rank this piece.
  int taken_from_ = 0;
  std::size_t taken_ = 0;
};

// Into a vector of `dimension` elements.
class DenseSum : public EntriesWork {
 protected:
  DenseSum(const EntriesWorker& worker, DType type, void* out, std::size_t dimension, std::uint64_t asked)
      : EntriesWork(worker, type, asked), dimension_(dimension), out_(out) {}
  Status open() override { return worker_.sparse->clear(out_, dimension_ * dtype_size(type_)); }
  Status use(int /*rank*/, const gpu::Entries& entries, std::size_t /*first*/) override {
    return worker_.sparse->add(type_, entries, out_, dimension_);
  }

  const std::size_t dimension_;

 private:
  void* const out_;
};

// Of entries that lie in the context of the link.
class EntriesSum final : public DenseSum {
 public:
  EntriesSum(const EntriesWorker& worker, const gpu::Entries& in, DType type, void* out,
             std::size_t dimension, std::uint64_t asked)
      : DenseSum(worker, type, out, dimension, asked), in_(in) {}

 protected:
  Result<gpu::Entries> make() override;
  std::size_t number() const override { return in_.count; }
  bool broken() const override { return worker_.sparse != nullptr && worker_.sparse->broken(); }

 private:
  const gpu::Entries in_;
};

// An allreduce (sum) of the largest entries of dense vectors.
struct LargestJob {
  const float* in;
  float* out;  // may be `in`
  std::size_t n;
  std::size_t k;              // at most n
  PlacedResidual* residual;   // added before, and what is not sent is left in it; null: none
  float* left_out = nullptr;  // where it lies on the GPU
};

// Gives the work that takes them to memory of `sparse`, and leaves the others in the residual.
Status give_largest(gpu::Link& link, gpu::SparseLink& sparse, const LargestJob& job);

class LargestSum final : public DenseSum {
 public:
  LargestSum(const EntriesWorker& worker, const LargestJob& job, std::uint64_t asked);

 protected:
  Result<gpu::Entries> make() override;
  std::size_t number() const override { return worker_.sparse->largest().count; }

 private:
  const LargestJob job_;
};

}  // namespace heddle
