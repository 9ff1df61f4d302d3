// What a rank keeps of another one that it has messages with.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/fifo.hpp"
#include "base/status.hpp"
#include "transports/tcp/addresses.hpp"
#include "transports/tcp/socket.hpp"
#include "transports/tcp/wire.hpp"
#include "transports/transport.hpp"

namespace heddle::tcp {

struct Sending {
  Frame frame{};
  const std::byte* data = nullptr;
  Ticket* ticket = nullptr;  // null: of this transport's own
  bool announced = false;    // in `held`: the receiver knows

  std::size_t payload() const { return frame.kind == Kind::data ? frame.bytes : 0; }
  std::size_t length() const { return sizeof frame + payload(); }
};

struct Receiving {
  std::uint32_t tag = 0;
  std::size_t bytes = 0;
  std::byte* data = nullptr;
  Ticket* ticket = nullptr;
  std::int64_t since_ms = 0;
};

// What one peer may make this rank keep of messages whose receives are not open, before nothing more is read
// of it: unless something is open with it, since that may lie behind. Enough for as much as sockets hold and
// more, so that who sends runs ahead as before.
constexpr std::size_t kMostEarly = std::size_t{16} << 20;
// What a message without content takes of it.
constexpr std::size_t kKeptOverhead = 64;

// A message, or the announcement of one, that came before its receive was open.
struct Early {
  std::uint32_t tag = 0;
  std::size_t bytes = 0;
  std::unique_ptr<std::byte[]> data;
  bool announced = false;  // nothing has come of it so far
  bool complete = false;

  std::size_t kept() const { return kKeptOverhead + (data != nullptr ? bytes : 0); }
};

// The message whose bytes come next on the connection.
struct Arriving {
  std::size_t left = 0;
  std::byte* to = nullptr;   // null: nobody wants it any more
  Ticket* ticket = nullptr;  // null: it is the early message that begins where `early` does, or unwanted
  const std::byte* early = nullptr;
};

struct Attempt {
  Socket socket;
  std::size_t address = 0;  // of place.addresses
  bool insists = false;
  bool greeted = false;  // the peer may have taken it: it is not dropped before the answer
};

struct Peer {
  // connecting: there are attempts; awaited: there is none.
  enum class State { idle, connecting, awaited, connected, gone };

  int rank = 0;
  Place place;
  State state = State::idle;
  Status failure;      // why it is gone
  Departure left_for;  // as it has told

  // Making the connection.
  Socket socket;                      // while connected
  std::vector<Attempt> attempts;      // side by side
  std::vector<std::size_t> untried;   // of place.addresses
  std::string tried;                  // the others and why they did not do
  unsigned refused = 0;               // so often, for the sake of the peer's own connection
  std::size_t refused_at = 0;         // the last time
  TimePoint next_step;                // an attempt beside the others; waiting for the peer's own connection
  TimePoint give_up;                  // connecting
  std::optional<TimePoint> hopeless;  // no address has led there, and from then on none will
  bool wants_room = false;            // to be told when the socket takes more
  bool left_unread = false;           // not to be told when something comes

  // Sending: `queue` in its order. What waits for the receiver waits in `held`, and so does what comes after
  // it with its tag.
  Fifo<Sending> queue;
  Fifo<Sending> held;
  std::vector<std::uint32_t>
      ready;             // tags of receives that the peer has opened, no message sent for them so far
  std::size_t sent = 0;  // bytes of the first in `queue`, those of its frame among them

  // Receiving.
  Fifo<Receiving> open;
  std::vector<std::uint32_t>
      called;  // tags of long messages whose receives were given up after they had been called
  Fifo<Early> early;
  std::size_t kept = 0;  // by `early`
  Arriving arriving;
  std::vector<std::byte> buffer;  // what was read ahead
  std::size_t buffered = 0;       // of it, an incomplete frame, between two reads
  bool active = false;            // in the transport's list

  bool greets() const {
    return std::any_of(attempts.begin(), attempts.end(), [](const Attempt& a) { return a.greeted; });
  }
  bool insists() const {
    return std::any_of(attempts.begin(), attempts.end(),
                       [](const Attempt& a) { return a.greeted && a.insists; });
  }
  bool sends() const { return !queue.empty(); }
  bool is_full() const { return kept > kMostEarly; }
  bool receives() const { return !open.empty() || !held.empty() || arriving.ticket != nullptr; }
};

}  // namespace heddle::tcp
