// What is asked of hwloc's picture of a machine in more than one place.
#pragma once

#include <hwloc.h>

#include <cstddef>
#include <memory>
#include <string>

#include "base/status.hpp"

namespace heddle {

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using TopologyPtr = std::unique_ptr<hwloc_topology, DestroyTopology>;

// Loaded; `filter` is called before, with the hwloc_topology_t, and says what is to be in it.
template <typename Filter>
Result<TopologyPtr> load_topology(const Filter& filter) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return Status(Code::system, "hwloc_topology_init failed");
  TopologyPtr topology(raw);
  filter(raw);
  if (hwloc_topology_load(raw) != 0) return Status(Code::system, "hwloc_topology_load failed");
  return topology;
}

// Of the first cache of that type; 0: unknown.
inline std::size_t cache_bytes(hwloc_topology_t topology, hwloc_obj_type_t type) {
  hwloc_obj_t cache = hwloc_get_obj_by_type(topology, type, 0);
  return cache != nullptr && cache->attr != nullptr ? static_cast<std::size_t>(cache->attr->cache.size) : 0;
}

inline std::string processor_name(hwloc_topology_t topology) {
  hwloc_obj_t package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0);
  for (hwloc_obj_t object : {package, hwloc_get_root_obj(topology)}) {
    const char* name = object != nullptr ? hwloc_obj_get_info_by_name(object, "CPUModel") : nullptr;
    if (name != nullptr) return name;
  }
  return "unknown processor";
}

}  // namespace heddle
