#include "setup/node_teams.hpp"

namespace heddle {
namespace {

// Calls place(kind, its first member, geometry, offset) for every team of the node in the order in which they
// lie in memory; returns where that ends.
template <typename Place>
std::size_t for_each_team(const TopologyView& topology, std::int32_t node, const ShmTeamGeometry& like,
                          Place place) {
  std::size_t offset = 0;
  for (int k = 0; k < kTeamKinds; ++k) {
    const auto kind = static_cast<TeamKind>(k);
    for (const std::int32_t rank : topology.members(node)) {
      if (kind != TeamKind::node && topology.domains(rank) == 1) continue;
      const std::size_t members = topology.team(kind, rank).size();
      if (topology.member_of(kind, rank) != 0 || members < 2) continue;
      ShmTeamGeometry geometry = like;
      geometry.members = static_cast<int>(members);
      place(kind, rank, geometry, offset);
      offset += geometry.bytes();
    }
  }
  return offset;
}

}  // namespace

std::size_t team_bytes(const TopologyView& topology, std::int32_t node, const ShmTeamGeometry& like) {
  return for_each_team(topology, node, like,
                       [](TeamKind, std::int32_t, const ShmTeamGeometry&, std::size_t) {});
}

Teams make_teams(const TopologyView& topology, std::int32_t rank, const ShmTeamGeometry& like,
                 std::byte* memory, const SharedHeap* heap) {
  Teams teams;
  for_each_team(topology, topology.node_of(rank), like,
                [&](TeamKind kind, std::int32_t first, const ShmTeamGeometry& geometry, std::size_t offset) {
                  if (topology.team_of(kind, first) != topology.team_of(kind, rank)) return;
                  teams[static_cast<std::size_t>(kind)] =
                      make_shm_team(memory + offset, geometry, topology.member_of(kind, rank), heap);
                });
  return teams;
}

}  // namespace heddle
