// Which of a port's addresses to use: pure functions over what the port offers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "transports/verbs/wire.hpp"

namespace heddle::verbs {

struct GidEntry {
  std::uint32_t index = 0;
  Gid gid{};
  LinkKind kind = LinkKind::roce_v2;
};

// "::ffff:10.0.0.1", "fe80::1".
std::string gid_text(const Gid& gid);

// The entry of index `wanted`, or with -1 the best: RoCE v2 before v1, which routers do not forward; an
// address of IPv4, then a global one of IPv6, then a link's own. Of equals the first. `port` is for the
// message where there is none.
Result<GidEntry> choose_gid(const std::vector<GidEntry>& table, int wanted, const std::string& port);

// The index of partition `wanted` (a key, whose highest bit does not count) in a port's table, where it is a
// full member if it is one at all; with -1 the first.
Result<std::uint16_t> choose_partition(const std::vector<std::uint16_t>& keys, int wanted,
                                       const std::string& port);

// HEDDLE_VERBS_DEVICE: "mlx5_0" or "mlx5_0:2"; port 0: any.
struct DeviceName {
  std::string name;
  int port = 0;
};
Result<DeviceName> parse_device_name(std::string_view text);

}  // namespace heddle::verbs
