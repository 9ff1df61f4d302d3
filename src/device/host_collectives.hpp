// Blocking collectives in the host's memory: what a thread that works for a communicator needs of the ranks.
#pragma once

#include <cstddef>

#include "base/dtype.hpp"
#include "base/status.hpp"

namespace heddle {

class Across;  // device/across.hpp

// One thread at a time. Arguments are valid (the public API checks them).
class HostCollectives {
 public:
  HostCollectives() = default;
  HostCollectives(const HostCollectives&) = delete;
  HostCollectives& operator=(const HostCollectives&) = delete;
  virtual ~HostCollectives() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // `in == out` means in place.
  virtual Status allreduce(const void* in, void* out, std::size_t count, DType type, Op op) = 0;
  virtual Status bcast(void* buffer, std::size_t bytes, int root) = 0;
  // Those among the ranks of one place, of a communicator over several nodes; null: there are none.
  virtual Across* across() { return nullptr; }
};

}  // namespace heddle
