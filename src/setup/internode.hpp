// Ways for messages between nodes, and which of those that all ranks can use is the fastest.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "engine/waiter.hpp"
#include "schedule/topology_view.hpp"
#include "setup/lent_messages.hpp"
#include "transports/network.hpp"
#include "transports/transport.hpp"

namespace heddle {

// Members are destroyed from the last to the first: users before what they use. So does what is assigned to,
// with the object that was assigned.
struct Internode {
  Internode() = default;
  Internode(Internode&&) = default;
  Internode& operator=(Internode&& other) noexcept {
    std::swap(name, other.name);
    std::swap(lent, other.lent);
    std::swap(network, other.network);
    std::swap(transport, other.transport);
    return *this;
  }
  ~Internode() = default;

  std::string name;                    // in HEDDLE_TRANSPORTS
  std::unique_ptr<LentMessages> lent;  // of those two one
  std::unique_ptr<Network> network;
  std::unique_ptr<Transport> transport;  // null: there is one node
};

// What an exchange among all nodes takes: each sends to 1, 2, 4, ... nodes on, and receives from as many
// back.
struct InternodeTimes {
  static constexpr std::size_t kSmall = 8;
  static constexpr std::size_t kLarge = std::size_t{64} << 10;
  double small_ns = 0;
  double large_ns = 0;
  bool lent =
      false;  // by an MPI: they move while heddle is called, and stand still while its caller computes
};

// Both are collective over the first ranks of all nodes; the others return at once. All nodes send at the
// same time, as in a collective: where they share cores or wires, that is where ways differ.

// Whether all nodes reach each other: one exchange, for which connections are made.
Status reach_internode(Transport& transport, const TopologyView& topology, int rank,
                       const WaitPolicy& policy);

struct TimedWay {
  Transport* transport;
  WaitPolicy policy;
};
// The ways take turns, because networks may lend speed: links that clouds limit let some hundred KiB through
// before they do. Some fifty exchanges by each, or six where an exchange is known to be `slow`. Infinity for
// a way that fails, zeros for ranks that do not take part.
std::vector<InternodeTimes> time_internode(std::span<TimedWay> ways, const TopologyView& topology, int rank,
                                           bool slow = false);

// The large one of these times by one way, the middle one of three: infinity where it fails, 0 for ranks that
// do not take part. Collective as above.
double time_crossing(const TimedWay& way, const TopologyView& topology, int rank);

// The place of the fastest by small and large messages alike; of those that are within 5% of it the first.
// Infinity is for ways that failed. Not for none. `overlap`: messages may be under way while the caller
// computes, so that lent ones count as a quarter slower.
std::size_t fastest(std::span<const InternodeTimes> ways, bool overlap);

}  // namespace heddle
