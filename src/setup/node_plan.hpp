// How the ranks of a node share it: which of them form a domain, and how large the team's slots are. From
// what hwloc says of the machine and from the cores that each rank may run on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "setup/core_claim.hpp"

namespace heddle {

using CpuMask = std::array<std::uint64_t, 16>;  // hardware threads 0 to 1023

// What matters here of the machine under this process.
struct Machine {
  // Ways to divide its hardware threads, the finest first: by last-level cache, by NUMA node, by package.
  std::vector<std::vector<CpuMask>> levels;
  std::size_t l2_bytes = 0;  // of one core; 0: unknown
  std::size_t l3_bytes = 0;  // of one cache; 0: unknown
  std::string processor;     // "" where hwloc does not know
};

// On one line, the same for machines that are alike.
std::string describe(const Machine& machine);

// Asks hwloc (and so heeds its HWLOC_SYNTHETIC and HWLOC_XMLFILE): about 2 ms on a machine of two cores, more
// on larger ones. Fails where hwloc does.
Result<Machine> discover_machine();

struct NodePlan {
  // By member; dense, in order of first appearance. All 0: one domain.
  std::vector<std::uint16_t> domain_of;
  std::size_t slot_bytes = 0;
};

// The domains: the finest division of the machine in which each member is bound to one part, several parts
// have members, and a part has two members or more on average. One domain where there is none: members that
// may run anywhere have no place to be near to.
//
// The slots: a slot is written by one core and read by others from caches, so that it takes a small part of
// L2; the slots of all members that share a last-level cache should fit into half of it.
NodePlan plan_node(const Machine& machine, const std::vector<CoreClaim>& members);

// Which members share a last-level cache, a NUMA node and a package, on one line: numbers of parts in order
// of first appearance, the same wherever members are as near to each other; "-" for a division in which one
// is not bound to a part.
std::string describe_placement(const Machine& machine, const std::vector<CoreClaim>& members);

}  // namespace heddle
