// What there is of CUDA on this machine, for heddle-info.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/status.hpp"

namespace heddle::gpu {

struct Device {
  std::string name;
  std::string pci;
  int capability = 0;  // 90: sm_90
  std::size_t bytes = 0;
  bool dmabuf = false;      // its memory can be given to other drivers as a dmabuf
  bool gpu_direct = false;  // a module of the kernel may give it to RDMA devices
};

// Two GPUs, by their places among the devices.
struct Pair {
  int first = 0;
  int second = 0;
  bool reach = false;    // each one's kernels and copies reach the other's memory
  bool atomics = false;  // and their atomic operations, as over NVLink
  int rank = 0;          // of the link, as the driver orders this machine's
};

struct Survey {
  int driver = 0;  // 13000: CUDA 13.0
  std::vector<Device> devices;
  std::vector<Pair> pairs;  // of them all, each once, the first place the lower one
};

// What this build has kernels for (gpu/kernels), as in "sm_80, sm_90, PTX of 80"; empty: it has none.
const char* kernel_architectures();

// Loads the driver and initialises it, which nothing else in heddle does. `unsupported` says why there is
// none.
Result<Survey> survey();

}  // namespace heddle::gpu
