// What connections go by.
#pragma once

#include <ucp/api/ucp.h>

#include <string>

namespace heddle {

// The devices that an endpoint uses, "tcp/eth0"; "" where UCX does not tell.
std::string lanes_of(ucp_ep_h endpoint);

}  // namespace heddle
