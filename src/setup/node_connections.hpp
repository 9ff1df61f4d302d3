// The set-up of messages between nodes: the ways that all ranks can use are opened, compared, and the fastest
// is kept.
#pragma once

#include <vector>

#include "base/config.hpp"
#include "base/status.hpp"
#include "setup/bootstrap.hpp"
#include "setup/hello.hpp"
#include "setup/setup.hpp"

namespace heddle {

// Collective, once the topology of `connections` is known: the way that the first rank of the first node
// knows to be the fastest, or the one that is measured as such now. Sets `internode`, `comparison` and
// `passed_over`. On one node: nothing.
Status connect_nodes(const Bootstrap& bootstrap, const Config& config, const std::vector<Hello>& hellos,
                     Connections& connections);

}  // namespace heddle
