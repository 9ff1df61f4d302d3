// Opening networks, which are modules beside this library.
#pragma once

#include <memory>
#include <string>

#include "base/config.hpp"
#include "base/status.hpp"
#include "transports/network.hpp"

namespace heddle {

// The path of libheddle_network_NAME.so: in the folder of this library or in heddle/ there, or in `folder`
// where it is not empty. `unsupported`: it is not there.
Result<std::string> find_network(const std::string& name, const std::string& folder);

// What the settings say of networks; `verbs_device` is this rank's of those that HEDDLE_VERBS_DEVICE names.
NetworkOptions network_options(const Config& config, std::string verbs_device);

// From find_network(). `unsupported` says what is missing in one line. The module stays in the process.
Result<std::unique_ptr<Network>> open_network(const std::string& name, const std::string& folder,
                                              const NetworkOptions& options);

}  // namespace heddle
