// Messages between nodes by UCX (UCP): whatever it finds between two hosts, from TCP to InfiniBand, on as
// many rails as it likes. One worker for each rank and communicator.
#pragma once

#include <memory>

#include "base/status.hpp"
#include "transports/network.hpp"

namespace heddle {

// `unsupported` where UCX finds no device that leads to other hosts.
Result<std::unique_ptr<Network>> open_ucx_network(const NetworkOptions& options);

}  // namespace heddle
