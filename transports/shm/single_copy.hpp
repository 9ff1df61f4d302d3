// Bcasts in which every member copies from the root's own buffer, once: the kernel lets it read the root's
// memory (process_vm_readv, "cross memory attach"; Chakraborty et al., "Contention-Aware Kernel-Assisted MPI
// Collectives", CLUSTER 2017).
//
// What goes through slots crosses twice between cores, once when the root takes the slot's lines from the
// last readers and once when they are read again. Here it crosses once, for a call of the kernel's and a
// meeting: the root may not return before all have its data. Whether that pays for vectors of some pages
// differs between processors by a factor of two in either direction, so it is measured (measure_single_copy).
// Longer ones are better off in slots that stay in the cache (1 MiB by two members: 135 us, and 230 copied
// once).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/dtype.hpp"
#include "base/status.hpp"
#include "transports/shm/shm_team_layout.hpp"
#include "transports/team.hpp"

namespace heddle {

// The bcasts it is for, in bytes.
inline constexpr std::size_t kOnceFrom = std::size_t{8} << 10;
inline constexpr std::size_t kOnceUpTo = std::size_t{64} << 10;

// Another process's memory; whether all of it came.
bool read_memory(std::int64_t pid, std::uint64_t place, std::byte* to, std::size_t bytes);

class SingleCopy {
 public:
  // As DirectReduce. What identifies this process is shown to the others from here on, and does not move:
  // neither does this object.
  SingleCopy(std::byte* memory, std::size_t stride, int members, int member);
  SingleCopy(const SingleCopy&) = delete;
  SingleCopy& operator=(const SingleCopy&) = delete;
  ~SingleCopy() = default;

  // Whether this process may read the memory of all others: each has put a number of its own where the others
  // are told to look. They must all have been constructed.
  bool reads_all() const;

  // A bcast. Before poll().
  void start(const TeamOp& op);
  enum class Way : std::uint8_t { undecided, staged, done };
  // Without waiting. `staged`: it goes through slots, for the root and those who could not read; others are
  // through with it.
  Way poll(const TeamOp& op) { return static_cast<int>(rank_) == op.root ? lend(op) : take(op); }

 private:
  team_layout::Board& board(std::size_t m) const { return *boards_[m]; }
  Way lend(const TeamOp& op);
  Way take(const TeamOp& op);

  std::vector<team_layout::Board*> boards_;
  std::size_t rank_;
  std::uint64_t number_;  // random
  Way way_ = Way::undecided;
  // Memory that the kernel does not let others read (a device's) is rarely the only such buffer of a
  // program's.
  std::uint64_t holds_back_ = 0;  // bcasts that are not offered, the next ones of this root
  std::uint64_t refused_ = 0;     // for as many more than before, since the last that all could read
};

// What measuring needs of a team.
struct SingleCopyTrial {
  std::function<void(bool once)> use;      // from the next operation on
  std::function<Status(TeamOp&)> run;      // starts the operation and waits for it
  std::function<Status(double&)> slowest;  // of all members' times, on each
  // Once that is spent the answer is no: somebody else uses the cores, and times say nothing.
  std::chrono::microseconds budget{20'000};
};

// Collective over a team whose members can read each other and have a core each. Times bcasts both ways by
// turns, the root another member each time, on buffers in turn as in programs. Whether copying once saves a
// twentieth of the time or more; the same on all members. 1 to 7 ms for two of them. A failure of `run` or
// `slowest` ends it.
Result<bool> measure_single_copy(const SingleCopyTrial& trial, int members);

}  // namespace heddle
