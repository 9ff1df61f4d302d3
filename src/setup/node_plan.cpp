#include "setup/node_plan.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>

#include "base/round_up.hpp"
#include "setup/topology.hpp"
#include "transports/shm/shm_team.hpp"

namespace heddle {
namespace {

constexpr hwloc_obj_type_t kTypes[] = {HWLOC_OBJ_L3CACHE, HWLOC_OBJ_NUMANODE, HWLOC_OBJ_PACKAGE};

CpuMask mask_of(hwloc_const_cpuset_t set) {
  CpuMask mask{};
  if (set == nullptr) return mask;
  for (std::size_t i = 0; i < mask.size(); ++i)
    mask[i] = hwloc_bitmap_to_ith_ulong(set, static_cast<unsigned>(i));
  return mask;
}

bool is_within(const CoreClaim& claim, const CpuMask& part) {
  bool any = false;
  for (std::size_t i = 0; i < part.size(); ++i) {
    if ((claim.mask[i] & ~part[i]) != 0) return false;
    any = any || claim.mask[i] != 0;
  }
  return any;
}

// The domain of each member under this division; nothing where one is not bound to a part.
std::optional<std::vector<std::uint16_t>> divide(const std::vector<CpuMask>& parts,
                                                 const std::vector<CoreClaim>& members) {
  std::vector<std::uint16_t> domain_of;
  std::map<std::size_t, std::uint16_t> number;
  for (const CoreClaim& member : members) {
    const auto part = std::find_if(parts.begin(), parts.end(),
                                   [&](const CpuMask& mask) { return is_within(member, mask); });
    if (part == parts.end()) return std::nullopt;
    const auto next = static_cast<std::uint16_t>(number.size());
    domain_of.push_back(number.emplace(part - parts.begin(), next).first->second);
  }
  return domain_of;
}

std::size_t count_of(const std::vector<std::uint16_t>& domain_of) {
  return static_cast<std::size_t>(*std::max_element(domain_of.begin(), domain_of.end())) + 1;
}

// The most members that share one last-level cache.
std::size_t crowd(const Machine& machine, const std::vector<CoreClaim>& members) {
  if (machine.levels.empty()) return members.size();
  const auto caches = divide(machine.levels.front(), members);
  if (!caches) return div_up(members.size(), machine.levels.front().size());
  std::vector<std::size_t> in(count_of(*caches), 0);
  for (const std::uint16_t cache : *caches)
    ++in[cache];
  return *std::max_element(in.begin(), in.end());
}

std::size_t slots_for(const Machine& machine, const std::vector<CoreClaim>& members) {
  // Within these, measured times hardly differ (docs/performance.md).
  constexpr std::size_t kLeast = std::size_t{32} << 10;
  constexpr std::size_t kMost = std::size_t{128} << 10;
  constexpr std::size_t kShareOfL2 = 16;
  std::size_t bytes = machine.l2_bytes != 0 ? machine.l2_bytes / kShareOfL2 : kDefaultSlotBytes;
  if (machine.l3_bytes != 0)
    bytes = std::min(bytes, machine.l3_bytes / 2 / (kSlotsOfAMember * crowd(machine, members)));
  return std::clamp(std::bit_floor(std::max<std::size_t>(bytes, 1)), kLeast, kMost);
}

}  // namespace

Result<Machine> discover_machine() {
  const Result<TopologyPtr> loaded = load_topology([](hwloc_topology_t topology) {
    // Nothing else: asking for all of it takes three times as long. Without groups a NUMA node that is a part
    // of a package would be given all of its threads.
    hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
    for (const hwloc_obj_type_t type : {HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_PACKAGE})
      hwloc_topology_set_type_filter(topology, type, HWLOC_TYPE_FILTER_KEEP_ALL);
    hwloc_topology_set_type_filter(topology, HWLOC_OBJ_GROUP, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
  });
  HEDDLE_TRY(loaded.status());
  hwloc_topology_t topology = loaded.value().get();
  Machine machine;
  for (const hwloc_obj_type_t type : kTypes) {
    std::vector<CpuMask> parts;
    for (int i = 0; i < hwloc_get_nbobjs_by_type(topology, type); ++i) {
      const CpuMask mask = mask_of(hwloc_get_obj_by_type(topology, type, static_cast<unsigned>(i))->cpuset);
      if (mask != CpuMask{}) parts.push_back(mask);
    }
    if (!parts.empty()) machine.levels.push_back(std::move(parts));
  }
  machine.processor = processor_name(topology);
  machine.l2_bytes = cache_bytes(topology, HWLOC_OBJ_L2CACHE);
  machine.l3_bytes = cache_bytes(topology, HWLOC_OBJ_L3CACHE);
  return machine;
}

std::string describe(const Machine& machine) {
  std::string text = machine.processor;
  text += ", L2 " + std::to_string(machine.l2_bytes) + ", L3 " + std::to_string(machine.l3_bytes);
  for (const std::vector<CpuMask>& parts : machine.levels) {
    text += ", " + std::to_string(parts.size()) + " of";
    int threads = 0;
    for (const std::uint64_t word : parts.front())
      threads += std::popcount(word);
    text += " " + std::to_string(threads);
  }
  return text;
}

std::string describe_placement(const Machine& machine, const std::vector<CoreClaim>& members) {
  std::string text;
  for (const std::vector<CpuMask>& parts : machine.levels) {
    const auto divided = divide(parts, members);
    if (!text.empty()) text += '/';
    if (!divided) text += '-';
    for (std::size_t m = 0; divided && m < divided->size(); ++m)
      text += (m == 0 ? "" : " ") + std::to_string((*divided)[m]);
  }
  return text;
}

NodePlan plan_node(const Machine& machine, const std::vector<CoreClaim>& members) {
  NodePlan plan;
  plan.domain_of.assign(members.size(), 0);
  plan.slot_bytes = slots_for(machine, members);
  for (const std::vector<CpuMask>& parts : machine.levels) {
    const auto divided = divide(parts, members);
    if (!divided) continue;
    const std::size_t domains = count_of(*divided);
    if (domains < 2 || members.size() < 2 * domains) continue;
    plan.domain_of = *divided;
    break;
  }
  return plan;
}

}  // namespace heddle
