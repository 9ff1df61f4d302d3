// How far the GPUs of a machine are from each other, and how buffers get from one to the other, for
// heddle-info.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "gpu/survey.hpp"

namespace heddle::info {

// Words for people, and the same ones in JSON.
struct GpuPair {
  std::string first;     // "GPU 0"
  std::string second;    // "GPU 1"
  std::string distance;  // as in GpuNetwork; NVLink is no part of it
  std::string reach;     // each the other's memory, as the driver says: "yes", "no"
  std::string atomics;   // likewise
  int rank = 0;          // gpu::Pair's
  std::string path;      // that heddle takes between ranks of one node
};

// In the order of the survey. `sysfs` is /sys, or a tree like it.
std::vector<GpuPair> find_gpu_pairs(const gpu::Survey& survey, const std::filesystem::path& sysfs);

}  // namespace heddle::info
