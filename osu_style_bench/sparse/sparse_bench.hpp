// Measures sparse allreduce at one density, with dense allreduces of the same vectors by turns.
#pragma once

#include <memory>
#include <vector>

#include "common/buffers.hpp"
#include "common/device.hpp"
#include "common/job.hpp"
#include "common/side.hpp"
#include "sparse/options.hpp"
#include "sparse/results.hpp"
#include "sparse/vectors.hpp"

namespace heddle::bench {

// Who is measured first, second and so on in a round: all orders of two or three sides, one after the other.
std::vector<int> order_of_sides(int sides, int round);

// What a rank's vectors take at the highest density, two or one of a kind.
std::size_t least_sparse_memory(const SparseOptions& options, int ranks);

class SparseBench {
 public:
  // `host` may be null: then the host MPI is not measured. `device` too: then vectors lie in the host's
  // memory. All of these outlive the bench.
  SparseBench(const Job& job, const SparseOptions& options, heddle_comm_t comm, Side& dense, Side* host,
              Device* device);

  // `bytes_per_second` of the wire; 0 where it is not known.
  SparseRow measure(double percent, double bytes_per_second);

 private:
  enum Who { kSparse, kDense, kHost };
  static constexpr int kSides = 3;
  struct Plan;

  void set_vectors(std::size_t entries);
  void call_sparse();
  void call(Who who);
  void call_in_place(Who who, void* buffer);
  double block(Who who, long calls);
  double block_in_place(Who who, long calls);
  Plan plan();
  void measure_rounds(SparseRow& row);
  void take_stats(SparseRow& row, double bytes_per_second);
  // Makes one call and compares what it gives with `sum`.
  bool right(Who who, const std::vector<std::byte>& sum);
  bool all_right(std::size_t entries);
  // Between the host's memory and dense vectors.
  std::vector<std::byte> on_host(const void* buffer) const;
  bool in_place() const { return options_.api == SparseApi::in_place; }
  void check(const char* what, heddle_status status) const;

  const Job& job_;
  const SparseOptions& options_;
  heddle_comm_t comm_;
  Side& dense_;
  Side* host_;
  Device* device_;
  std::size_t bytes_;  // of a dense vector
  bool streams_sent_;
  std::size_t memory_;  // of a pool of vectors
  BufferPool send_;
  BufferPool receive_;
  std::vector<std::byte> mine_;  // this rank's dense vector
  std::vector<std::unique_ptr<SparseArrays>> in_;
  std::vector<std::unique_ptr<SparseArrays>> out_;
  std::size_t at_ = 0;    // which of them is next
  void* last_ = nullptr;  // the dense buffer of the last call
  SparseArrays* last_out_ = nullptr;
};

}  // namespace heddle::bench
