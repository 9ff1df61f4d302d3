// How the ranks of a node tell each other what they must agree on, in the host's memory.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.hpp"

namespace heddle {

class Meeting {
 public:
  Meeting() = default;
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;
  virtual ~Meeting() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The communicator's number for one of them, for messages.
  virtual int number_of(int rank) const { return rank; }
  // Collective. Of each word the largest of all ranks'. A failure is the communicator's, and final.
  virtual Status largest(std::span<std::uint64_t> words) = 0;
  // A word of each rank's, 0 at first, which others may read at any time.
  virtual void tell(std::uint64_t word) = 0;
  virtual std::uint64_t told(int rank) const = 0;
  virtual bool is_gone(int rank) const = 0;
  // The blocking allreduces, bcasts, reduces and allgathers so far that were not served by the GPUs, the same
  // on all ranks.
  virtual std::uint64_t calls() const = 0;
  // Whether all ranks had come before any left the last of them, a bcast.
  virtual bool bcast_met() const = 0;
};

}  // namespace heddle
