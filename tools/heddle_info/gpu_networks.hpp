// How far GPUs and network devices are from each other, and how buffers get from one to the other, for
// heddle-info.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "gpu/survey.hpp"
#include "heddle_info/gpu_direct_trial.hpp"

namespace heddle::info {

// A GPU and a network device of this machine. Words for people, and the same ones in JSON.
struct GpuNetwork {
  std::string gpu;      // "GPU 0"
  std::string network;  // "mlx5_0", "eth0"
  std::string
      distance;  // "same PCIe switch", "same root complex", "same NUMA node", "other NUMA node", "unknown"
  // How fast the network device reads and writes the GPU's memory, "24.3 GB/s", or "no". Where that could not
  // be tried, whether it could: "possible", or, where it depends on what this machine's processor forwards,
  // "unsure".
  std::string gdr_read;
  std::string gdr_write;
  std::string path;  // that heddle takes
  std::string why;
};

// Tries it with GPU number `gpu` and an RDMA device.
using TryGpuDirect = std::function<GpuDirectTrial(int gpu, const std::string& network)>;

// All pairs, in the order of GPUs. `sysfs` is /sys, or a tree like it: GPUs are looked up in bus/pci/devices,
// network devices in class/infiniband and class/net, where those without a device of their own (loopback,
// bridges) are left out, and those that are a device of the former as well.
std::vector<GpuNetwork> find_gpu_networks(const std::vector<gpu::Device>& gpus,
                                          const std::filesystem::path& sysfs, const TryGpuDirect& attempt);

}  // namespace heddle::info
