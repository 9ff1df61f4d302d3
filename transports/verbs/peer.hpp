// What a rank knows of another one: the connection, and every message between them that is not through.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/fifo.hpp"
#include "transports/transport.hpp"
#include "transports/verbs/credit.hpp"
#include "transports/verbs/device.hpp"
#include "transports/verbs/handshake.hpp"

namespace heddle::verbs {

// Of eager messages that no receive waits for: as much one peer may make another one keep, before it only
// announces.
constexpr std::uint64_t kEagerWindowBytes = std::uint64_t{256} << 10;
// What a message without content takes of it.
constexpr std::uint64_t kKeptOverhead = 64;

// Opened by the caller, not yet sent.
struct Outgoing {
  std::uint32_t tag = 0;
  const std::byte* data = nullptr;
  std::uint64_t bytes = 0;
  Ticket* ticket = nullptr;
};

// Announced; written as the other side grants room.
struct LongSend {
  std::uint32_t id = 0;
  const std::byte* data = nullptr;
  std::uint64_t bytes = 0;
  std::uint64_t granted = 0;
  std::uint64_t written = 0;
  unsigned in_flight = 0;
  Ticket* ticket = nullptr;
};

// A grant that came, and is not carried out yet.
struct Write {
  std::uint32_t send = 0;
  std::uint32_t receive = 0;
  std::uint64_t address = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint32_t key = 0;
};

// Opened by the caller, and no message has come for it.
struct Receive {
  std::uint32_t tag = 0;
  std::byte* data = nullptr;
  std::uint64_t bytes = 0;
  Ticket* ticket = nullptr;
};

// A message that no receive waits for: its content, or its announcement.
struct Arrival {
  std::uint32_t tag = 0;
  std::uint64_t bytes = 0;
  bool announced = false;
  std::uint32_t id = 0;  // announced: the sender's
  std::vector<std::byte> content;
};

// The part of a buffer that the sender has been given.
struct Granted {
  Registrations::Lease lease;
  std::uint64_t bytes = 0;
};

struct LongReceive {
  std::uint32_t id = 0;
  std::uint32_t sender_id = 0;
  std::byte* data = nullptr;
  std::uint64_t bytes = 0;
  std::uint64_t granted = 0;
  std::uint64_t arrived = 0;
  Fifo<Granted> open;
  Ticket* ticket = nullptr;
};

struct Peer {
  int rank = -1;
  bool reachable = false;
  Address address;
  RoutePtr route;

  Handshake handshake;
  QueuePairPtr queue_pair;
  std::uint32_t first_packet = 0;
  std::uint32_t inline_bytes = 0;
  std::uint32_t slot_bytes = 0;  // the longest message to them
  bool gone = false;
  bool left = false;  // its end of the connection is closed, when nothing was to come or go any more

  Credits credits;
  EagerWindow window{kEagerWindowBytes};
  std::uint64_t matched = 0;  // of their eager messages
  std::uint32_t sent = 0;     // headers
  std::uint32_t came = 0;
  unsigned in_flight = 0;    // work requests
  unsigned undelivered = 0;  // of those, messages that counted as sent when they were copied
  bool probing = false;
  bool sign = false;  // of life, since the last look
  std::chrono::steady_clock::time_point last_sign;
  bool idle = true;  // nothing was in flight for a moment since the last look
  // The last look that found a sign of life, or that it was idle.
  std::chrono::steady_clock::time_point unanswered_since;
  bool pages_on_demand = false;  // may put off messages for as long as a page takes

  std::uint32_t next_id = 1;
  Fifo<Header> answers;  // grants and refusals that wait for a credit
  Fifo<Write> writes;
  Fifo<Outgoing> queue;
  std::vector<LongSend> long_sends;
  std::vector<Receive> receives;
  Fifo<Arrival> arrivals;
  std::vector<LongReceive> long_receives;

  bool waited_for() const {
    return !receives.empty() || !long_receives.empty() || !long_sends.empty() || !queue.empty();
  }
};

}  // namespace heddle::verbs
