// Addresses for tests of TCP.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "transports/tcp/addresses.hpp"

namespace heddle::tcp {

inline Address ipv4(std::array<std::uint8_t, 4> bytes, std::uint8_t prefix, std::uint32_t megabits = 0) {
  Address address;
  address.family = 4;
  address.prefix = prefix;
  address.megabits = megabits;
  std::copy(bytes.begin(), bytes.end(), address.bytes.begin());
  return address;
}

inline const Address kLoopback = ipv4({127, 0, 0, 1}, 8);

}  // namespace heddle::tcp
