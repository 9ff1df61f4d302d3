#include "setup/hardware.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/host_identity.hpp"
#include "setup/topology.hpp"
#include "setup/usable_cores.hpp"

namespace heddle {
namespace {

int count(const TopologyPtr& topology, hwloc_obj_type_t type) {
  return std::max(hwloc_get_nbobjs_by_type(topology.get(), type), 0);
}

std::string many(int count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string size_text(std::size_t bytes) {
  if (bytes == 0) return "unknown";
  if (bytes >= std::size_t{1} << 30) return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30));
  if (bytes >= std::size_t{1} << 20) return fmt::format("{:.4g} MiB", static_cast<double>(bytes) / (1 << 20));
  return fmt::format("{:.4g} KiB", static_cast<double>(bytes) / (1 << 10));
}

}  // namespace

Result<Hardware> discover_hardware() {
  const Result<TopologyPtr> loaded = load_topology([](hwloc_topology_t) {});
  HEDDLE_TRY(loaded.status());
  const TopologyPtr& topology = loaded.value();
  Hardware hardware;
  hardware.host_name = host_identity().host_name;
  hardware.processor = processor_name(topology.get());
  hardware.usable_cores = usable_cores();
  hardware.hardware_threads = count(topology, HWLOC_OBJ_PU);
  hardware.cores = count(topology, HWLOC_OBJ_CORE);
  hardware.packages = count(topology, HWLOC_OBJ_PACKAGE);
  hardware.numa_nodes = count(topology, HWLOC_OBJ_NUMANODE);
  hardware.l2_bytes = cache_bytes(topology.get(), HWLOC_OBJ_L2CACHE);
  hardware.l3_bytes = cache_bytes(topology.get(), HWLOC_OBJ_L3CACHE);
  hardware.l3_caches = count(topology, HWLOC_OBJ_L3CACHE);
  // Not hwloc's sum over NUMA nodes, which misses memory that a virtual machine was given later.
  hardware.memory_bytes =
      static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return hardware;
}

std::string describe(const Hardware& h) {
  return fmt::format("{}: {}\n{} (of {}, {}, {}, {}), {} of memory\nL2 {} a core, L3 {} in each of {}",
                     h.host_name, h.processor, many(h.usable_cores, "usable core"),
                     many(h.hardware_threads, "hardware thread"), many(h.cores, "core"),
                     many(h.packages, "package"), many(h.numa_nodes, "NUMA node"), size_text(h.memory_bytes),
                     size_text(h.l2_bytes), size_text(h.l3_bytes), h.l3_caches);
}

}  // namespace heddle
