// How long others may leave a connection without an answer.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>

namespace heddle::verbs {

struct Deadlines {
  std::chrono::milliseconds connection;  // to be made; 0: for ever
  std::chrono::milliseconds silence;     // of a device that does not acknowledge a message
};

// A message that is not acknowledged is sent so many times more. Seven would be for ever on Soft-RoCE.
constexpr std::uint8_t kRetries = 6;

// For ibv_qp_attr::timeout (InfiniBand Architecture 1, section 9.7.6.1.3): each try waits for 4.096 us times
// 2 to this power, of which devices may make up to four times as much. The nearest, so that all tries
// together take between 0.7 and 1.4 times `silence`.
inline std::uint8_t ack_timeout(std::chrono::milliseconds silence) {
  const double one_try = static_cast<double>(silence.count()) * 1e3 / (kRetries + 1);  // us
  return static_cast<std::uint8_t>(std::clamp(std::round(std::log2(one_try / 4.096)), 1.0, 31.0));
}

// A device gives up after at most 5.6 times `silence`, by the above, or by a shortest time of its own. One
// that has done neither by twice that has lost what it was given to do, and would leave its rank waiting for
// ever.
inline std::chrono::duration<double> gives_up_within(std::chrono::duration<double> silence) {
  constexpr std::chrono::duration<double> kShortest{10};
  return std::max(12 * silence, kShortest);
}

// A message that meets no open receive, or memory that the peer's device has yet to look up, is tried again
// after the pause that the peer asks for.
constexpr std::uint8_t kReceiverPause = 12;  // 0.64 ms

// How often. Credits see to it that a receive is open: some milliseconds, and then it is an error. What pages
// take to come (from a swap, perhaps) nobody knows: for ever, which 7 is. A peer that is gone does not ask
// for a pause, and is found out as without.
inline std::uint8_t receiver_retries(bool peer_pages_on_demand) {
  constexpr std::uint8_t kForEver = 7;
  return peer_pages_on_demand ? kForEver : 6;
}

}  // namespace heddle::verbs
