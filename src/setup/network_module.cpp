#include "setup/network_module.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "heddle/heddle.h"

namespace heddle {
namespace {

// Of the shared object that holds this code: libheddle.so, a backend of the preload library, or a program,
// whose name the linker does not know and which may have been started by way of PATH.
std::filesystem::path own_folder() {
  static const char here = 0;
  Dl_info self;
  void* entry = nullptr;
  if (dladdr1(&here, &self, &entry, RTLD_DL_LINKMAP) == 0) return ".";
  const std::filesystem::path name = static_cast<link_map*>(entry)->l_name;
  std::error_code ignored;
  return (name.empty() ? std::filesystem::read_symlink("/proc/self/exe", ignored) : name).parent_path();
}

}  // namespace

Result<std::string> find_network(const std::string& name, const std::string& folder) {
  const std::string file = "libheddle_network_" + name + ".so";
  std::vector<std::string> places{folder};
  if (folder.empty()) {
    const std::filesystem::path own = own_folder();
    // The last for programs, which are installed beside the libraries' folder.
    places = {own, own / "heddle", own / ".." / HEDDLE_LIBDIR / "heddle"};
  }
  for (const std::string& place : places) {
    const std::string path = fmt::format("{}/{}", place, file);
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) return path;
  }
  return Status(
      Code::unsupported,
      folder.empty()
          ? fmt::format("{} is neither beside the library nor in heddle/ there: not built, or not installed",
                        file)
          : fmt::format("{} is not in {} (HEDDLE_MODULES)", file, folder));
}

NetworkOptions network_options(const Config& config, std::string verbs_device) {
  return {.timeout = config.timeout,
          .tcp_interfaces = config.tcp_interfaces,
          .tcp_ports = config.tcp_ports,
          .tcp_congestion = config.tcp_congestion,
          .verbs_device = std::move(verbs_device),
          .verbs_gid = config.verbs_gid,
          .verbs_timeout = config.verbs_timeout,
          .verbs_traffic_class = config.verbs_traffic_class,
          .verbs_sl = config.verbs_sl,
          .verbs_pkey = config.verbs_pkey,
          .verbs_odp = config.verbs_odp};
}

Result<std::unique_ptr<Network>> open_network(const std::string& name, const std::string& folder,
                                              const NetworkOptions& options) {
  const Result<std::string> found = find_network(name, folder);
  if (!found.ok()) return found.status();
  const std::string& path = found.value();
  // Not closed again: what it is linked to may have threads, and memory that it watches.
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) return Status(Code::unsupported, dlerror());
  const auto* module = static_cast<const NetworkModule*>(dlsym(handle, kNetworkModuleSymbol));
  if (module == nullptr || std::string_view(module->interface) != HEDDLE_NETWORK_INTERFACE)
    return Status(
        Code::unsupported,
        fmt::format("{} is of another version or build of heddle than the library: install both from "
                    "one build, or let HEDDLE_MODULES name the folder of the library's own",
                    path));
  return module->open(options);
}

}  // namespace heddle
