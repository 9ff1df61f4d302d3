// What the GPUs' paths over several nodes (nodes_path.hpp, stream_relay.hpp) need of the network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.hpp"
#include "base/status.hpp"
#include "engine/engine.hpp"
#include "transports/transport.hpp"

namespace heddle {

// What ranks of all nodes do together, in the host's memory. A failure is the communicator's, and final.
class Across {
 public:
  Across() = default;
  Across(const Across&) = delete;
  Across& operator=(const Across&) = delete;
  virtual ~Across() = default;

  virtual int rank() const = 0;   // in the communicator
  virtual int lanes() const = 0;  // ranks of the smallest node
  // Collective. Of each word the largest of all ranks'.
  virtual Status largest(std::span<std::uint64_t> words) = 0;
  // Start a sum, in place, or a bcast from the node of rank `root`, among the ranks that have this one's
  // place on their nodes: as many elements or bytes on all of these. All ranks make the same calls, also
  // those with none. `slot` is one that is not in use. `local`: `data` lies on a GPU, in memory that
  // network() was given, and this does what there is to do between messages; borrowed until the end.
  virtual Status start_sum(std::size_t slot, void* data, std::size_t count, DType type, Op op,
                           LocalWork* local) = 0;
  virtual Status start_bcast(std::size_t slot, void* data, std::size_t bytes, int root, LocalWork* local) = 0;
  virtual Status finish(std::size_t slot) = 0;
  // Moves what was started.
  virtual Status progress() = 0;
  // By which messages between nodes go; null: there are none.
  virtual Transport* network() = 0;
  // Local. The most scratch that this rank may need for a sum of up to `bytes` bytes; a bcast needs none.
  virtual Result<std::size_t> scratch_for(std::size_t bytes) = 0;
};

}  // namespace heddle
