// What messages between nodes cost: measured when a communicator is made, because an estimate is wrong by ten
// where the interconnect is TCP, and the choice of algorithm and chunks hangs on it.
#pragma once

#include <cstddef>
#include <functional>

#include "base/clock.hpp"
#include "base/cost.hpp"
#include "base/status.hpp"

namespace heddle {

// Nanoseconds of one message, one way.
struct MessageTimes {
  static constexpr std::size_t kSmall = 8;
  static constexpr std::size_t kMiddle = std::size_t{64} << 10;
  static constexpr std::size_t kLarge = std::size_t{512} << 10;
  double small_ns = 0;
  double middle_ns = 0;
  double large_ns = 0;     // 0: not measured
  double handling_ns = 0;  // of one small message among several in a row
};

// The line through the larger sizes, where the choices are that matter: its constant includes the handshake
// that large messages begin with. Never less than a small message takes. Handling is half of that at most.
MessageCost fit_message_cost(const MessageTimes& times);

// Sends to the partner or receives from it, and waits: blocking.
using Exchange = std::function<Status(bool sends, void* data, std::size_t bytes)>;

// Both partners call it, one of them as `first`, whose result counts. About 80 messages, more for 50 ms of
// each size where others seem to take the cores, and a dozen where a message and its answer take longer than
// that; the large ones only where middle ones take less than two milliseconds.
Result<MessageTimes> time_messages(const Exchange& exchange, bool first, const Clock& clock = {});

}  // namespace heddle
