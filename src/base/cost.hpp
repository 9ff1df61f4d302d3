// Cost of moving or folding n bytes: fixed + per_byte * n nanoseconds. A value with algebra.
#pragma once

#include <cstdint>

namespace heddle {

struct LinearCost {
  double fixed_ns = 0;
  double per_byte_ns = 0;

  constexpr double at(double bytes) const { return fixed_ns + per_byte_ns * bytes; }
  constexpr LinearCost operator+(LinearCost o) const {
    return {fixed_ns + o.fixed_ns, per_byte_ns + o.per_byte_ns};
  }
  constexpr LinearCost operator*(double k) const { return {fixed_ns * k, per_byte_ns * k}; }
  constexpr bool operator==(const LinearCost&) const = default;
};

// A message between two ranks: from the call that sends it until it is there, and what of that keeps either
// end from the next one. None takes less than `least_ns`, however short: where ends share cores, what that
// adds to short ones hides behind the bytes of long ones. `crossing`: how many times as long a message takes
// while all nodes send one far, 1, 2, 4, ... nodes on in turn; 0: not known. `nodes`, `ranks_of_node`: the
// most (of ranks, on any node) of the communicators that found out the least. 0: none did.
struct MessageCost {
  double fixed_ns = 0;
  double per_byte_ns = 0;
  double handling_ns = 0;
  double least_ns = 0;
  double crossing = 0;
  std::int32_t nodes = 0;
  std::int32_t ranks_of_node = 0;

  constexpr bool operator==(const MessageCost&) const = default;
};

}  // namespace heddle
