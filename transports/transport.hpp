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

// An open send or receive. The caller owns it, keeps it and the buffer in place until `done` is true or
// cancel() returned. The words are the transport's.
struct Ticket {
  bool done = false;
  std::uint64_t words[6] = {};
};

// Of a message of another length than its receive waits for. `who` sent it: "rank 3 on node7".
inline Status different_length(const std::string& who, std::size_t sent, std::size_t expected) {
  return Status(Code::invalid_argument, who + " sent " + std::to_string(sent) + " bytes where " +
                                            std::to_string(expected) +
                                            " were expected: do all ranks pass the same count and type?");
}

struct TransportCapabilities {
  const char* name = "";  // "loopback", "shm", "mpi", ...
  LinearCost cost;        // estimate of one message, for selection until it is measured
  // A send may be done before it has left this process, see Transport::settled().
  bool sends_later = false;
};

// For whose sake a rank takes no further part.
struct Departure {
  int culprit = -1;             // a rank that is gone, or did not come; -1: no rank is known to be the reason
  std::uint32_t waited_ms = 0;  // for a rank that did not come; 0: it is gone

  bool is_known() const { return culprit >= 0; }
  bool is_for_the_gone() const { return is_known() && waited_ms == 0; }
};

// What those hear who wait for `who`, which has left for the sake of `culprit`.
inline std::string why_left(const std::string& who, const std::string& culprit, const Departure& why) {
  if (why.waited_ms == 0) return culprit + " is gone, as " + who + " says, which left for that";
  std::string seconds = std::to_string((why.waited_ms + 50) / 100);
  seconds.insert(seconds.size() - 1, seconds.size() == 1 ? "0." : ".");
  return who + " has waited " + seconds + " s for " + culprit + ", and given up (HEDDLE_TIMEOUT)";
}

// How the host gets at memory that it cannot touch, for messages that are not worth the network's own access.
// What fails is for its owner to find out: the bytes are undefined then, and the message goes on.
class DeviceAccess {
 public:
  DeviceAccess() = default;
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;
  virtual ~DeviceAccess() = default;

  virtual void read(void* to, const std::byte* from, std::size_t bytes) = 0;
  // Complete when it returns: the network's device may read it.
  virtual void write(std::byte* to, const void* from, std::size_t bytes) = 0;
};

// Memory of a GPU, as a network is told of it.
struct DeviceMemory {
  std::byte* begin = nullptr;
  std::size_t bytes = 0;
  int dmabuf = -1;                 // a descriptor, borrowed for the call; -1: its addresses are all there is
  DeviceAccess* access = nullptr;  // borrowed until it is taken back
};

// What the network's device takes for a byte that it moves, in nanoseconds: within the host's memory, out of
// the GPU's into that, and the other way.
struct DeviceReach {
  double host = 0;
  double read = 0;
  double write = 0;
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
  // which they were opened, different tags are independent. `data` stays the caller's. A ticket with which
  // one of them failed may still be held until cancel().
  virtual Status send(int peer, std::uint32_t tag, const void* data, std::size_t bytes, Ticket& ticket) = 0;
  virtual Status recv(int peer, std::uint32_t tag, void* data, std::size_t bytes, Ticket& ticket) = 0;

  // Moves every open message as far as it goes and sets `done` on the tickets that finished. An error (a dead
  // peer, a truncated message) is final for this object.
  virtual Status progress() = 0;

  // Grows with whatever comes or goes of this rank's messages, in units of this transport's own: how those
  // who wait see that something moves.
  virtual std::uint64_t moved() const { return 0; }
  // Ranks that share memory tell each other that they have seen something move, by whatever transport. How
  // often the others have told, together.
  virtual void tell_moved() {}
  virtual std::uint64_t others_moved() const { return 0; }

  // How much of what has a ticket that is done may still wait in this process, at most, because a library
  // copies what the network does not take at once. Somebody should call settled() and progress() until it is
  // true, or a peer may wait for what nobody moves.
  virtual std::size_t unsettled_bytes() const { return 0; }
  virtual bool settled() { return true; }

  // Gives up on a ticket, after an error or a deadline: after the call its buffer is no longer touched.
  virtual void cancel(Ticket& ticket) = 0;

  // GPUDirect RDMA: buffers of messages may lie in `memory` from now on, each wholly in there, and may be
  // given to either side of a message. What it holds is lost. Moves some of it there and back, by the device
  // alone: how fast that is, and that it arrives. `unsupported`: it does not, and why.
  virtual Result<DeviceReach> add_memory(const DeviceMemory& /*memory*/) {
    return Status(Code::unsupported, std::string(capabilities().name) + " reaches the host's memory alone");
  }
  // No message uses it any more. Before it is freed.
  virtual void remove_memory(const std::byte* /*begin*/) {}

  // True when the process behind `peer` is known to be gone; false when it is alive or cannot be told.
  virtual bool peer_is_gone(int peer) const = 0;

  // Why no message can go to or come from `peer` so far, for whoever has waited long; "": no reason is known.
  virtual std::string trouble(int /*peer*/) const { return ""; }

  // Tells the others, where they can be told, that this rank takes no further part, though its process may
  // live on. The last call but cancel().
  virtual void leave(const Departure& /*why*/) {}
  // True when `peer` is known to have done so.
  virtual bool peer_has_left(int /*peer*/) const { return false; }
  // For which rank's sake it says that it has.
  virtual Departure peer_left_for(int /*peer*/) const { return {}; }
  // For whose sake this object has failed, as far as known.
  virtual Departure culprit() const { return {}; }

  // For those who would rather sleep than poll: a descriptor that becomes readable when progress() has
  // something to do. -1: there is none.
  virtual int wake_descriptor() const { return -1; }

  // Before each sleep: true when progress() has nothing to do before the descriptor is readable.
  virtual bool arm() { return false; }
};

}  // namespace heddle
