// Says once per communicator what was odd about the environment, and about the tuning file it names.
#pragma once

#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/status.hpp"
#include "setup/bootstrap.hpp"

namespace heddle {

// All that is odd about the environment, the tuning file that it names, and what it asks for by
// HEDDLE_COMPRESS: each names the variable, its value and what is done instead.
std::vector<std::string> complaints_of(const ParsedConfig& parsed);

// Collective over the bootstrap (one allgather): rank 0 logs its complaints, another rank only where its own
// differ.
Status report_complaints(const ParsedConfig& parsed, const Bootstrap& bootstrap);

}  // namespace heddle
