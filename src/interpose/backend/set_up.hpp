// Setting heddle up on an MPI communicator, by means of the host's collectives.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/log.hpp"
#include "interpose/backend/comm_state.hpp"
#include "interpose/backend/datatype_map.hpp"
#include "interpose/backend/host_mpi.hpp"
#include "interpose/backend/host_self.hpp"
#include "setup/bootstrap.hpp"

namespace heddle::backend {

// Descriptors, memory or the like were short for a communicator: to find that out takes milliseconds, and a
// job may make thousands of them. After each failure in a row twice as many are left to the host untried, 31
// at most. Any thread.
class Shortage {
 public:
  // Whether this rank would rather not try the next one.
  bool holds_off() const {
    const std::lock_guard lock(mutex_);
    return untried_ < (1 << std::min(failures_, 5)) - 1;
  }
  void note_refusal(bool untried) {
    const std::lock_guard lock(mutex_);
    untried_ = untried ? untried_ + 1 : 0;
    failures_ += untried ? 0 : 1;
  }
  void note_success() {
    const std::lock_guard lock(mutex_);
    failures_ = untried_ = 0;
  }

 private:
  mutable std::mutex mutex_;
  int failures_ = 0;  // in a row
  int untried_ = 0;   // since the last one
};

class SetUp {
 public:
  SetUp(const HostMpi& mpi, const HostSelf& self, std::shared_ptr<ProcessState> process, ParsedConfig parsed,
        int world_rank);

  const Config& config() const { return config_; }
  const Log& log() const { return log_; }
  // What is odd about this rank's environment and was not said in a set-up, as none came to it.
  void say_rest() { say_complaints(true); }
  // Logs an error that may be the last of the job.
  void last_words(const std::string& text) const;

  // Decides for `state` who serves `comm` from now on: collective over `comm`, the same outcome on all ranks.
  // A rank that does not come is named in the log after config.warn_after; after config.timeout the job is
  // aborted.
  void run(MPI_Comm comm, CommState& state, DatatypeMap& map);
  // Whether a communicator of all ranks has messages between nodes, the host's or heddle's own: the same on
  // all of them.
  bool all_ranks_message() const { return all_ranks_message_.load(std::memory_order_relaxed); }

 private:
  struct Exchange;  // of one communicator

  Status gather(Exchange& exchange, const void* mine, void* all, std::size_t bytes);
  Status gather_first(Exchange& exchange, const void* mine, void* all, std::size_t bytes);
  template <typename Missing>
  Status wait(const Exchange& exchange, MPI_Request* request, const Missing& missing);
  Status agree_on_pairs(Exchange& exchange, CommState& state);
  std::vector<int> in_world(MPI_Comm comm, const std::vector<int>& ranks) const;
  bool has_strangers(MPI_Comm comm, int size) const;
  std::string name_ranks(const Exchange& exchange, const std::vector<int>& ranks) const;
  void say_complaints(bool first_with_these);
  void conclude(CommState& state, const Status& refusal);

  const HostMpi& mpi_;
  const HostSelf& self_;
  const std::shared_ptr<ProcessState> process_;  // for every communicator
  Config config_;
  Log log_;
  std::uint64_t complaints_hash_ = 0;
  std::atomic<int> p2p_open_{0};
  Shortage shortage_;
  std::atomic<bool> all_ranks_message_{false};
  std::mutex mutex_;  // for the two below; never held across an MPI call
  std::vector<std::string> complaints_;
  std::set<std::string> refusals_said_;
};

}  // namespace heddle::backend
