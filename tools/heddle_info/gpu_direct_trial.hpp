// Whether a network device reads and writes a GPU's memory, and how fast, by having it do so, as a
// communicator does (src/device/gpu_direct.hpp).
#pragma once

#include <string>

#include "base/config.hpp"
#include "transports/transport.hpp"

namespace heddle::info {

struct GpuDirectTrial {
  enum class Outcome { not_tried, refused, works } outcome = Outcome::not_tried;
  std::string why;    // of the first two
  DeviceReach reach;  // of the last
  bool pays = false;  // so that communicators use it
};

// GPU number `gpu`, whose driver is initialised, and RDMA device `network`. Makes a context, and takes some
// memory for that time.
GpuDirectTrial try_gpu_direct(const Config& config, int gpu, const std::string& network);

}  // namespace heddle::info
