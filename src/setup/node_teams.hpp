// The teams of one node, side by side in the memory that its ranks share.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "schedule/topology_view.hpp"
#include "transports/shm/shm_team.hpp"

namespace heddle {

// By TeamKind; null where a rank has nobody but itself, or where the domain is the node.
using Teams = std::array<std::unique_ptr<ShmTeam>, kTeamKinds>;

// Shared memory that the teams of `node` need, from a 4096-aligned, zeroed start. Most of it is never
// touched. `like` is the geometry of all of them but for the number of members.
std::size_t team_bytes(const TopologyView& topology, std::int32_t node, const ShmTeamGeometry& like);

// The teams of `rank` in its node's memory, which outlives them, as does `heap`.
Teams make_teams(const TopologyView& topology, std::int32_t rank, const ShmTeamGeometry& like,
                 std::byte* memory, const SharedHeap* heap);

}  // namespace heddle
