#include "heddle_info/gpu_networks.hpp"

#include <algorithm>
#include <system_error>

#include <fmt/format.h>

#include "heddle_info/sites.hpp"

namespace heddle::info {
namespace {

namespace fs = std::filesystem;

struct Network {
  std::string name;
  bool rdma = false;
  Site site;
};

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
    const Site site = site_of_gpu(gpus[i].pci, sysfs);
    const std::string way = registered_by(gpus[i], sysfs);
    for (const Network& network : networks)
      pairs.push_back(pair_of(static_cast<int>(i), network, distance_of(site, network.site), way, attempt));
  }
  return pairs;
}

}  // namespace heddle::info
