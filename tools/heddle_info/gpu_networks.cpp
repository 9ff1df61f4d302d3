#include "heddle_info/gpu_networks.hpp"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <system_error>

#include <fmt/format.h>

namespace heddle::info {
namespace {

namespace fs = std::filesystem;

// Where a device is: its place in the tree of buses, from the root complex ("pci0000:00") on, and its NUMA
// node.
struct Site {
  fs::path device;
  std::vector<std::string> buses;
  int numa_node = -1;
};

struct Network {
  std::string name;
  bool rdma = false;
  Site site;
};

int number_in(const fs::path& file) {
  std::ifstream in(file);
  int number = -1;
  return in >> number ? number : -1;
}

// "0000:3b:00.0", in small letters, as the kernel writes it.
bool is_pci_address(const std::string& text) {
  return text.size() == 12 && text[4] == ':' && text[7] == ':' && text[10] == '.';
}

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

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<Network> find_networks(const fs::path& sysfs) {
  std::vector<Network> found;
  for (const char* kind : {"infiniband", "net"}) {
    const fs::path folder = sysfs / "class" / kind;
    for (const std::string& name : names_in(folder)) {
      Network network{name, kind == std::string("infiniband"), site_of(folder / name / "device")};
      const bool known = std::any_of(found.begin(), found.end(), [&](const Network& other) {
        return other.site.device == network.site.device;
      });
      if (!network.site.device.empty() && !known) found.push_back(std::move(network));
    }
  }
  return found;
}

enum class Distance { same_switch, same_root, same_numa_node, other_numa_node, unknown };

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

// How a network device comes to know a GPU's memory; "": not at all.
std::string registered_by(const gpu::Device& gpu, const fs::path& sysfs) {
  if (gpu.dmabuf) return "dmabuf";
  std::error_code error;
  for (const char* module : {"nvidia_peermem", "nv_peer_mem"}) {
    if (gpu.gpu_direct && fs::exists(sysfs / "module" / module, error)) return module;
  }
  return "";
}

std::string speed_text(double ns_per_byte) {
  return ns_per_byte > 0 ? fmt::format("{:.1f} GB/s", 1 / ns_per_byte) : "yes";
}

void note(const GpuDirectTrial& trial, GpuNetwork& pair) {
  const std::string within = speed_text(trial.reach.host);
  switch (trial.outcome) {
    case GpuDirectTrial::Outcome::not_tried:
      pair.why = "GPUDirect RDMA could not be tried: " + trial.why;
      break;
    case GpuDirectTrial::Outcome::refused:
      pair.gdr_read = pair.gdr_write = "no";
      pair.why = trial.why;
      break;
    case GpuDirectTrial::Outcome::works:
      pair.gdr_read = speed_text(trial.reach.read);
      pair.gdr_write = speed_text(trial.reach.write);
      if (trial.pays) pair.path = "GPUDirect RDMA for large calls";
      pair.why = fmt::format("{} within the host's memory{}", within, trial.pays ? "" : ", which is faster");
      break;
  }
}

GpuNetwork pair_of(int gpu, const Network& network, Distance distance, const std::string& way,
                   const TryGpuDirect& attempt) {
  GpuNetwork pair{fmt::format("GPU {}", gpu),
                  network.name,
                  text_of(distance),
                  "no",
                  "no",
                  "staged in pinned host memory",
                  ""};
  if (!network.rdma) {
    pair.why = "no RDMA device";
  } else if (way.empty()) {
    pair.why = "neither dmabuf nor nvidia_peermem makes the GPU's memory known to RDMA devices";
  } else {
    // Behind one switch they talk directly. Elsewhere writes pass through processors, but not all of those
    // let reads through.
    pair.gdr_write = distance == Distance::unknown ? "unsure" : "possible";
    pair.gdr_read = distance == Distance::same_switch ? "possible" : "unsure";
    note(attempt(gpu, network.name), pair);
  }
  return pair;
}

}  // namespace

std::vector<GpuNetwork> find_gpu_networks(const std::vector<gpu::Device>& gpus, const fs::path& sysfs,
                                          const TryGpuDirect& attempt) {
  const std::vector<Network> networks = find_networks(sysfs);
  std::vector<GpuNetwork> pairs;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    // The driver's letters may be large ones.
    std::string address = gpus[i].pci;
    std::transform(address.begin(), address.end(), address.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    const Site site = address.empty() ? Site{} : site_of(sysfs / "bus" / "pci" / "devices" / address);
    const std::string way = registered_by(gpus[i], sysfs);
    for (const Network& network : networks)
      pairs.push_back(pair_of(static_cast<int>(i), network, distance_of(site, network.site), way, attempt));
  }
  return pairs;
}

}  // namespace heddle::info
