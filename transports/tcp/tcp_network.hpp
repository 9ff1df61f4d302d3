// TCP as a network between nodes. It needs nothing but the system's sockets, and is therefore no module.
#pragma once

#include <memory>

#include "base/status.hpp"
#include "transports/network.hpp"

namespace heddle {

// `unsupported` where no interface has an address.
Result<std::unique_ptr<Network>> open_tcp_network(const NetworkOptions& options);

}  // namespace heddle
