// libibverbs as a Network.
#pragma once

#include "transports/network.hpp"

namespace heddle::verbs {

Result<std::unique_ptr<Network>> open_network(const NetworkOptions& options);

}  // namespace heddle::verbs
