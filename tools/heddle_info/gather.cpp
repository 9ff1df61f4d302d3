#include <unistd.h>

#include <cstring>
#include <utility>

#include "engine/kernels/kernels.hpp"
#include "heddle/heddle.h"
#include "heddle_info/info.hpp"
#include "setup/complaints.hpp"

namespace heddle::info {

Info gather(int ranks, const std::string& sysfs) {
  Info info;
  info.version = HEDDLE_VERSION_STRING;
  info.fold_target = fold_target();
  Result<Hardware> hardware = discover_hardware();
  if (hardware.ok()) {
    info.hardware = std::move(hardware).value();
  } else {
    info.hardware_error = hardware.status().message();
  }
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "HEDDLE_", 7) == 0) info.environment.emplace_back(*entry);
  }
  ParsedConfig parsed = parse_config(info.environment);
  info.complaints = complaints_of(parsed);
  info.transports = probe_transports(parsed.config);
  probe_devices(parsed.config, sysfs, &info);
  // What the communicator itself would log goes to the report instead.
  parsed.config.log_level = LogLevel::none;
  info.chosen = ask_communicator(ranks, parsed.config);
  return info;
}

}  // namespace heddle::info
