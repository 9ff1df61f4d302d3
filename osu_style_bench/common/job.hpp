// The ranks that run a benchmark together, and what they tell each other outside of the timed regions.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "heddle/heddle.h"

namespace heddle::bench {

struct DestroyComm {
  void operator()(heddle_comm* comm) const { heddle_comm_destroy(comm); }
};
using NativeComm = std::unique_ptr<heddle_comm, DestroyComm>;

// How two ranks are started, by what the program is built for; `option`: what it takes to do without MPI, if
// anything.
std::string how_two_start(const std::string& option);

// Started by MPI's launcher, or without MPI by one that sets RANK and WORLD_SIZE. Agreement goes through
// PMPI_ calls, which no preload library sees, or through heddle where there is no MPI. One thread at a time.
class Job {
 public:
  // `native`: the benchmark calls heddle, so MPI is not needed. `threads`: several of this rank's threads
  // will call at once. Null on failure, with the sentence in `problem`.
  static std::unique_ptr<Job> start(int* argc, char*** argv, bool native, bool threads, std::string& problem);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job();  // finalizes MPI if start() initialised it

  int rank() const { return rank_; }
  int size() const { return size_; }
  // Its number among the ranks of its machine: as MPI says, or LOCAL_RANK (torchrun sets it), or else its
  // rank. Collective.
  int local_rank() const;
  bool has_mpi() const { return has_mpi_; }
  bool leads() const { return rank_ == 0; }

  // The sentence that says so where the launcher of another MPI than the program's started it, which leaves
  // each process alone; else empty.
  std::string other_launcher() const;

  // Each value becomes the largest (the sum) over all ranks, on all ranks.
  void maximum(std::span<double> values) const;
  void sum(std::span<double> values) const;
  double maximum(double value) const;
  bool all(bool good) const;
  void barrier() const;

  // A further communicator of heddle over all ranks; collective. Null on failure, with the sentence in
  // `problem`.
  NativeComm make_native_comm(std::string& problem) const;

  // Ends all ranks after a failure that the others cannot see.
  [[noreturn]] void abort(const std::string& why) const;
  // What `run` returns. An exception ends all ranks, as others may be waiting for this one: unwinding any
  // further would have it leave MPI, and wait for them there.
  int run(const std::function<int()>& run) const;
  // Each rank's `text`, by rank, on all ranks. Collective.
  std::vector<std::string> gather(const std::string& text) const;

 private:
  Job() = default;
  void reduce(std::span<double> values, bool largest) const;

  bool has_mpi_ = false;
  int rank_ = 0;
  int size_ = 1;
  NativeComm control_;  // where there is no MPI
};

}  // namespace heddle::bench
