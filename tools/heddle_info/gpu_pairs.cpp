#include "heddle_info/gpu_pairs.hpp"

#include <fmt/format.h>

#include "heddle_info/sites.hpp"

namespace heddle::info {

std::vector<GpuPair> find_gpu_pairs(const gpu::Survey& survey, const std::filesystem::path& sysfs) {
  const auto site = [&](int gpu) {
    return site_of_gpu(survey.devices[static_cast<std::size_t>(gpu)].pci, sysfs);
  };
  std::vector<GpuPair> found;
  for (const gpu::Pair& pair : survey.pairs) {
    found.push_back({fmt::format("GPU {}", pair.first), fmt::format("GPU {}", pair.second),
                     text_of(distance_of(site(pair.first), site(pair.second))), pair.reach ? "yes" : "no",
                     pair.atomics ? "yes" : "no", pair.rank,
                     pair.reach ? "directly, once tried" : "by way of host memory"});
  }
  return found;
}

}  // namespace heddle::info
