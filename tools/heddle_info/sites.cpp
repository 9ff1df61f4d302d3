#include "heddle_info/sites.hpp"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <system_error>

namespace heddle::info {
namespace {

namespace fs = std::filesystem;

int number_in(const fs::path& file) {
  std::ifstream in(file);
  int number = -1;
  return in >> number ? number : -1;
}

// "0000:3b:00.0", in small letters, as the kernel writes it.
bool is_pci_address(const std::string& text) {
  return text.size() == 12 && text[4] == ':' && text[7] == ':' && text[10] == '.';
}

}  // namespace

Site site_of(const fs::path& link) {
  Site site;
  std::error_code error;
  site.device = fs::canonical(link, error);
  if (error) return {};
  for (const fs::path& part : site.device) {
    const std::string name = part.string();
    if (is_pci_address(name) || (site.buses.empty() && name.starts_with("pci"))) site.buses.push_back(name);
  }
  // Of the nearest device that has one: a virtual function's own directory may say less than the one above.
  for (fs::path at = site.device; site.numa_node < 0 && at.has_relative_path(); at = at.parent_path())
    site.numa_node = number_in(at / "numa_node");
  return site;
}

Site site_of_gpu(std::string pci, const fs::path& sysfs) {
  if (pci.empty()) return {};
  std::transform(pci.begin(), pci.end(), pci.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return site_of(sysfs / "bus" / "pci" / "devices" / pci);
}

const char* text_of(Distance distance) {
  static constexpr const char* kTexts[] = {"same PCIe switch", "same root complex", "same NUMA node",
                                           "other NUMA node", "unknown"};
  return kTexts[static_cast<int>(distance)];
}

Distance distance_of(const Site& a, const Site& b) {
  if (!a.buses.empty() && !b.buses.empty()) {
    const auto apart = std::mismatch(a.buses.begin(), a.buses.end(), b.buses.begin(), b.buses.end());
    const auto common = apart.first - a.buses.begin();
    // The root complex, and a bridge below it.
    if (common >= 2) return Distance::same_switch;
    if (common == 1) return Distance::same_root;
  }
  if (a.numa_node < 0 || b.numa_node < 0) return Distance::unknown;
  return a.numa_node == b.numa_node ? Distance::same_numa_node : Distance::other_numa_node;
}

}  // namespace heddle::info
