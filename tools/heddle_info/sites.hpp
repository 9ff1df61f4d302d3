// Where devices are on the buses of a machine, and how far from each other.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace heddle::info {

// Its place in the tree of buses, from the root complex ("pci0000:00") on, and its NUMA node.
struct Site {
  std::filesystem::path device;
  std::vector<std::string> buses;
  int numa_node = -1;
};

// `link`: a device's folder in sysfs, or a link to it. Of nothing known where there is none.
Site site_of(const std::filesystem::path& link);
// `pci`: as the driver writes it, "0000:3B:00.0".
Site site_of_gpu(std::string pci, const std::filesystem::path& sysfs);

enum class Distance : std::uint8_t { same_switch, same_root, same_numa_node, other_numa_node, unknown };
Distance distance_of(const Site& a, const Site& b);
const char* text_of(Distance distance);

}  // namespace heddle::info
