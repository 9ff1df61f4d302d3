// What heddle-info finds out, as one value that the text and the JSON are made from.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "heddle_info/gpu_networks.hpp"
#include "heddle_info/gpu_pairs.hpp"
#include "schedule/schedule.hpp"
#include "setup/hardware.hpp"

namespace heddle::info {

// Something that may or may not be there, and what is known of it.
struct Finding {
  std::string name;
  bool usable = false;
  std::string detail;
};

// Sizes `first_bytes` to `last_bytes` of one collective that one algorithm serves.
struct SizeRange {
  Collective collective = Collective::allreduce;
  std::size_t first_bytes = 0;
  std::size_t last_bytes = 0;
  std::string algorithm;
};

struct ChosenAlgorithms {
  int ranks = 0;
  std::string communicator;  // its own description
  std::string error;         // why there are none
  std::vector<SizeRange> ranges;
};

struct Info {
  std::string version;
  std::string fold_target;
  Hardware hardware;
  std::string hardware_error;
  std::vector<Finding> transports;
  std::vector<Finding> devices;  // whose memory may be passed to collectives
  std::vector<GpuPair> gpu_pairs;
  std::vector<GpuNetwork> gpu_networks;
  std::vector<std::string> environment;
  std::vector<std::string> complaints;
  ChosenAlgorithms chosen;
};

// `ranks` >= 1: how many ranks of this machine to ask the algorithms for. `sysfs`: /sys.
Info gather(int ranks, const std::string& sysfs);

// Makes a communicator of `ranks` threads of this process and asks it, so that the answer is the one a job
// gets.
ChosenAlgorithms ask_communicator(int ranks, const Config& config);

std::vector<Finding> probe_transports(const Config& config);
// Info's `devices` and the pairs of them.
void probe_devices(const Config& config, const std::string& sysfs, Info* info);

std::string as_text(const Info& info);
std::string as_json(const Info& info);

// "4 B", "64 KiB", "1.5 MiB".
std::string bytes_text(std::size_t bytes);

}  // namespace heddle::info
