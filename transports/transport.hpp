// What a transport is to heddle: messages between the ranks of one communicator, non-blocking, in order per
// tag.
//
// One object per rank and communicator. All calls on one object come from one thread at a time (the
// communicator's caller); different objects are independent, so many ranks can live in one process. No call
// blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/cost.hpp"
#include "base/status.hpp"

namespace heddle {

// An open send or receive. The caller owns it, keeps it and the buffer in place until `test` says done or
// `cancel` returned, and never reads the fields, which are the transport's.
struct Ticket {
  bool done = false;
  std::uint64_t words[6] = {};
};

struct TransportCapabilities {
  const char* name = "";  // "loopback", "shm", "mpi", ...
  LinearCost cost;        // estimate of one message, for selection until it is measured
  std::size_t max_message = SIZE_MAX;
  bool device_memory = false;  // buffers may be device memory
  // A send may be done before it has left this process, see Transport::settled().
  bool sends_later = false;
};

class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  virtual const TransportCapabilities& capabilities() const = 0;

  // Opens a message of exactly `bytes` (0 allowed) to or from rank `peer`. A send and the receive it meets
  // carry the same tag and the same length; messages between two ranks with one tag match in the order in
  // which they were opened, different tags are independent. `data` stays the caller's.
  virtual Status send(int peer, std::uint32_t tag, const void* data, std::size_t bytes, Ticket& ticket) = 0;
  virtual Status recv(int peer, std::uint32_t tag, void* data, std::size_t bytes, Ticket& ticket) = 0;

  // Moves every open message as far as it goes and sets `done` on the tickets that finished. An error (a dead
  // peer, a truncated message) is final for this object.
  virtual Status progress() = 0;

  // How much of what has a ticket that is done may still wait in this process, at most, because a library copies what the network
  // does not take at once. Somebody should call settled() and progress() until it is true, or a peer may wait for what nobody moves.
  virtual std::size_t unsettled_bytes() const { return 0; }
  virtual bool settled() { return true; }

  // Gives up on an open ticket, after an error or a deadline: after the call its buffer is no longer touched.
  virtual void cancel(Ticket& ticket) = 0;

  // True when the process behind `peer` is known to be gone; false when it is alive or cannot be told.
  virtual bool peer_is_gone(int peer) const = 0;

  // For those who would rather sleep than poll: a descriptor that becomes readable when progress() has something to do.
  // -1: there is none.
  virtual int wake_descriptor() const { return -1; }

  // Before each sleep: true when progress() has nothing to do before the descriptor is readable.
  virtual bool arm() { return false; }
};

}  // namespace heddle
