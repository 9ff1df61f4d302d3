// Where a host can be reached by TCP, and which way to it is tried first.
#pragma once

#include <netinet/in.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.hpp"

namespace heddle::tcp {

struct Address {
  std::uint8_t family = 0;  // 4 or 6
  std::uint8_t prefix = 0;  // bits that the hosts of its network have in common
  std::uint16_t unused = 0;
  std::uint32_t megabits = 0;  // a second; 0: not known, or a bridge, which is rarely the way to other hosts
  std::array<std::uint8_t, 16> bytes{};

  bool operator==(const Address&) const = default;
};

// What a rank tells the others. `key` is a number that only they know: who connects and does not say it is a
// stranger.
struct Place {
  std::string host;  // its name, for messages to people
  std::uint64_t key = 0;
  std::uint16_t port = 0;
  std::vector<Address> addresses;
};

std::string encode(const Place& place);
// `internal` for anything that encode() did not make.
Result<Place> decode(const std::string& bytes);

// Those of the interfaces that are up; the loopback's only where it is the only interface. `interfaces`:
// names to look at, separated by commas, or "" for all. `unsupported` where none is left, with the names that
// there are.
Result<std::vector<Address>> local_addresses(const std::string& interfaces);

// Means another host there than here.
bool is_loopback(const Address& address);

// `theirs` in the order in which a rank that has `ours` tries them: on a network of its own first, those that
// it has itself last (a bridge with the same address on every host), and the faster before the slower.
std::vector<Address> by_preference(std::vector<Address> theirs, const std::vector<Address>& ours);

// For connect(2); returns its length.
socklen_t to_sockaddr(const Address& address, std::uint16_t port, sockaddr_storage& out);
// "10.0.0.1", "fd00::1"
std::string to_string(const Address& address);
// "10.0.0.1:4000", "[fd00::1]:4000"
std::string to_string(const Address& address, std::uint16_t port);

}  // namespace heddle::tcp
