// The teams of a topology, each over memory of its own, for ranks that live in this process.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "engine/engine.hpp"
#include "schedule/topology_view.hpp"
#include "transports/shm/shared_memory.hpp"
#include "transports/shm/shm_team.hpp"

namespace heddle::test {

class TopologyTeams {
 public:
  // Gives each rank's ports its teams.
  void connect(const TopologyView& topology, std::vector<Ports>& ports) {
    for (int kind = 0; kind < kTeamKinds; ++kind) {
      for (std::int32_t rank = 0; rank < topology.size(); ++rank) {
        const auto which = static_cast<TeamKind>(kind);
        if (which != TeamKind::node && topology.domains(rank) < 2) continue;
        if (topology.member_of(which, rank) == 0) add(topology.team(which, rank), which, ports);
      }
    }
  }

 private:
  void add(const std::vector<std::int32_t>& members, TeamKind kind, std::vector<Ports>& ports) {
    if (members.size() < 2) return;
    const ShmTeamGeometry geometry{static_cast<int>(members.size()), 4096};
    memories_.push_back(SharedMemory::create(geometry.bytes(), SharedMemory::Backing::memfd).value());
    for (std::size_t m = 0; m < members.size(); ++m) {
      teams_.push_back(make_shm_team(memories_.back().data(), geometry, static_cast<int>(m)));
      ports[static_cast<std::size_t>(members[m])].teams[static_cast<std::size_t>(kind)] = teams_.back().get();
    }
  }

  std::vector<SharedMemory> memories_;
  std::vector<std::unique_ptr<Team>> teams_;
};

}  // namespace heddle::test
