// Loopback: ranks that are threads of one process, for tests. Delays, both kinds of sends and faults on
// demand.
#pragma once

#include <cstdint>
#include <memory>

#include "transports/transport.hpp"

namespace heddle {

struct LoopbackOptions {
  std::size_t eager_bytes = 1024;  // shorter sends finish at once; longer ones when their receive is there
  std::uint32_t max_delay =
      0;  // a message becomes visible after a random number, up to this, of the receiver's polls
  std::uint64_t seed = 1;
  int dead_rank = -1;     // this rank's messages vanish, in both directions
  int corrupt_rank = -1;  // this rank's sends claim one byte less than they have: the receiver must notice
};

// The wire. Outlives the transports made from it. Thread-safe.
class LoopbackHub {
 public:
  LoopbackHub(int size, LoopbackOptions options);
  ~LoopbackHub();
  LoopbackHub(const LoopbackHub&) = delete;
  LoopbackHub& operator=(const LoopbackHub&) = delete;

  // One for each rank.
  std::unique_ptr<Transport> transport(int rank);

 private:
  friend class LoopbackTransport;
  struct Mailbox;
  int size_;
  LoopbackOptions options_;
  std::unique_ptr<Mailbox[]> mailboxes_;
};

}  // namespace heddle
