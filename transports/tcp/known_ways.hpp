// Which of a host's addresses has answered, for those who connect to it again: communicators follow each
// other, and what is dead stays so.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "transports/tcp/addresses.hpp"

namespace heddle::tcp {

// Any thread.
class KnownWays {
 public:
  std::optional<Address> to(const Place& place) const {
    const std::lock_guard lock(mutex_);
    const auto found = ways_.find(host_of(place));
    return found != ways_.end() ? std::optional(found->second) : std::nullopt;
  }
  void keep(const Place& place, const Address& address) {
    const std::lock_guard lock(mutex_);
    ways_[host_of(place)] = address;
  }

 private:
  // All that the ranks of a host have in common.
  static std::string host_of(const Place& place) { return encode({place.host, 0, 0, place.addresses}); }

  mutable std::mutex mutex_;
  std::map<std::string, Address> ways_;
};

}  // namespace heddle::tcp
