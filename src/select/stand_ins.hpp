// Machines small enough to run all their ranks, which stand in for one that is not.
#pragma once

#include <cstdint>
#include <optional>

#include "schedule/topology_view.hpp"

namespace heddle {

// All placed like the machine. From one to the other one sees how prices grow.
struct StandIns {
  TopologyView large;
  std::optional<TopologyView> fewer_nodes;  // none: `large` has all of the machine's
  std::optional<TopologyView> fewer_ranks;  // of each node; likewise
};

// None: the machine itself is small enough.
std::optional<StandIns> stand_ins(const TopologyView& topology);

}  // namespace heddle
