// Says once per communicator what was odd about the environment, and about the tuning file it names.
#pragma once

#include "base/config.hpp"
#include "base/status.hpp"
#include "comm/bootstrap.hpp"

namespace heddle {

// Collective over the bootstrap (one allgather): rank 0 logs its complaints, another rank only where its own
// differ.
Status report_complaints(const ParsedConfig& parsed, const Bootstrap& bootstrap);

}  // namespace heddle
