// What this machine has, looked up at run time; nothing here is linked.
#include <dlfcn.h>
#include <sys/socket.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/text.hpp"
#include "gpu/survey.hpp"
#include "heddle_info/info.hpp"
#include "setup/network_module.hpp"
#include "transports/shm/shared_memory.hpp"
#include "transports/tcp/addresses.hpp"
#include "transports/tcp/socket.hpp"

namespace heddle::info {
namespace {

class Library {
 public:
  explicit Library(const char* name) : handle_(::dlopen(name, RTLD_LAZY | RTLD_LOCAL)) {}
  bool open() const { return handle_ != nullptr; }
  // The function of that name as a pointer of type `Function`, or null.
  template <typename Function>
  Function* find(const char* name) const {
    return handle_ != nullptr ? reinterpret_cast<Function*>(::dlsym(handle_, name)) : nullptr;
  }
  // Never closed: drivers start threads that do not survive it, and the program ends soon.

 private:
  void* handle_;
};

Finding probe_backing(const char* name, SharedMemory::Backing backing) {
  constexpr std::size_t kTrial = std::size_t{1} << 20;
  Result<SharedMemory> memory = SharedMemory::create(kTrial, backing);
  if (!memory.ok()) return {name, false, memory.status().message()};
  memory->publish_done();
  return {name, true, "1 MiB made and mapped"};
}

std::string dev_shm_room() {
  struct statvfs room {};
  if (::statvfs("/dev/shm", &room) != 0) return "/dev/shm cannot be read";
  return fmt::format("/dev/shm has {} free", bytes_text(room.f_bavail * room.f_frsize));
}

// The preload library lies beside this program, in an installation and in a build.
Finding probe_preload() {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path here = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& folder : {here.parent_path() / HEDDLE_LIBDIR, here.parent_path() / "lib",
                                 here.parent_path() / "src" / "interpose"}) {
    const fs::path library = folder / "libheddle_preload.so";
    if (!fs::exists(library, error)) continue;
    std::string served;
    for (const auto& [file, mpi] : {std::pair("libheddle_backend_mpich.so", "the MPICH ABI"),
                                    std::pair("libheddle_backend_open_mpi.so", "Open MPI"),
                                    std::pair("libheddle_backend_mpi_abi.so", "the MPI standard's ABI")}) {
      if (fs::exists(folder / "heddle" / file, error) || fs::exists(folder / file, error))
        served += (served.empty() ? "" : ", ") + std::string(mpi);
    }
    if (!served.empty()) return {"mpi", true, fmt::format("LD_PRELOAD={}, for {}", library.string(), served)};
    return {"mpi", false, fmt::format("{} has no backend for any MPI beside it", library.string())};
  }
  return {"mpi", false,
          "libheddle_preload.so is not beside this program; heddle_mpi.h lends MPI to native programs"};
}

// The driver, and each GPU with what is done about buffers there.
std::vector<Finding> probe_cuda(const Config& config, const Result<gpu::Survey>& survey) {
  if (!survey.ok()) return {{"cuda", false, survey.status().message()}};
  const std::size_t count = survey->devices.size();
  const bool used = config.cuda && count > 0;
  std::vector<Finding> found = {{"cuda", used,
                                 fmt::format("driver {}.{}, {} GPU{}", survey->driver / 1000,
                                             survey->driver % 1000 / 10, count, count == 1 ? "" : "s")}};
  const std::string kernels = gpu::kernel_architectures();
  found[0].detail += kernels.empty() ? "; no kernels: built without nvcc" : "; kernels for " + kernels;
  if (!config.cuda) found[0].detail += "; left out by HEDDLE_CUDA=0";
  std::string way =
      fmt::format("by images in pinned host memory, {} at most", bytes_text(config.pinned_bytes));
  if (!kernels.empty() && config.device_bytes > 0)
    way = fmt::format("within a node by {} of its memory for each rank, else {}",
                      bytes_text(config.device_bytes), way);
  for (std::size_t i = 0; i < count; ++i) {
    const gpu::Device& device = survey->devices[i];
    found.push_back({fmt::format("GPU {}", i), used,
                     fmt::format("{}, {}, sm_{}, at {}: {}", device.name, bytes_text(device.bytes),
                                 device.capability, device.pci, way)});
  }
  return found;
}

Finding probe_tcp(const Config& config) {
  const Result<std::vector<tcp::Address>> addresses = tcp::local_addresses(config.tcp_interfaces);
  if (!addresses.ok()) return {"tcp", false, addresses.status().message()};
  std::string list;
  for (const tcp::Address& address : addresses.value())
    list += (list.empty() ? "" : ", ") + tcp::to_string(address);
  if (config.tcp_congestion.empty()) return {"tcp", true, list};
  const Socket trial(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const Status chosen = tcp_choose_congestion(trial, config.tcp_congestion);
  return {"tcp", chosen.ok(), chosen.ok() ? list : list + "; " + chosen.message()};
}

// Of a network that the system has: whether heddle's module for it is there.
Finding with_module(Finding found, const Config& config) {
  const Result<std::string> module = find_network(found.name, config.modules);
  found.usable = found.usable && module.ok();
  found.detail += "; " + (module.ok() ? module.value() : module.status().message());
  return found;
}

Finding probe_ucx() {
  const Library ucp("libucp.so.0");
  auto* const version = ucp.find<const char*()>("ucp_get_version_string");
  if (version == nullptr) return {"ucx", false, "no libucp.so.0"};
  return {"ucx", true, fmt::format("UCX {}", version())};
}

Finding probe_verbs() {
  const Library verbs("libibverbs.so.1");
  auto* const list = verbs.find<void**(int*)>("ibv_get_device_list");
  auto* const free_list = verbs.find<void(void**)>("ibv_free_device_list");
  if (list == nullptr || free_list == nullptr) {
    return {"verbs", false, "no libibverbs.so.1"};
  }
  int devices = 0;
  void** found = list(&devices);
  if (found != nullptr) free_list(found);
  if (found == nullptr) devices = 0;
  return {"verbs", devices > 0, fmt::format("libibverbs, {} device{}", devices, devices == 1 ? "" : "s")};
}

}  // namespace

std::vector<Finding> probe_transports(const Config& config) {
  std::vector<Finding> found;
  found.push_back(probe_backing("shm (memfd)", SharedMemory::Backing::memfd));
  found.push_back(probe_backing("shm (posix)", SharedMemory::Backing::posix));
  found.back().detail += "; " + dev_shm_room();
  found.push_back(probe_preload());
  found.push_back(probe_tcp(config));
  found.push_back(with_module(probe_ucx(), config));
  found.push_back(with_module(probe_verbs(), config));
  const std::vector<std::string_view> listed = split_list(config.transports);
  for (Finding& finding : found) {
    const std::string name = finding.name.substr(0, finding.name.find(' '));
    if (std::find(listed.begin(), listed.end(), name) != listed.end()) continue;
    finding.usable = false;
    finding.detail += "; left out by HEDDLE_TRANSPORTS=" + config.transports;
  }
  return found;
}

void probe_devices(const Config& config, const std::string& sysfs, Info* info) {
  const Result<gpu::Survey> survey = gpu::survey();
  const auto attempt = [&](int gpu, const std::string& network) {
    if (!config.cuda || config.gpu_direct == false)
      return GpuDirectTrial{
          GpuDirectTrial::Outcome::not_tried, "left out by HEDDLE_CUDA or HEDDLE_GPUDIRECT", {}, false};
    return try_gpu_direct(config, gpu, network);
  };
  info->devices = probe_cuda(config, survey);
  if (!survey.ok()) return;
  info->gpu_pairs = find_gpu_pairs(survey.value(), sysfs);
  info->gpu_networks = find_gpu_networks(survey->devices, sysfs, attempt);
}

}  // namespace heddle::info
