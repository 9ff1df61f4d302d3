// All ranks of a topology in one process, ready to execute schedules: transports between all of them and a
// team on every node. Ranks are moved by one thread, in random order: quick, and a hang is a count that runs
// out.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/engine.hpp"
#include "schedule/topology_view.hpp"
#include "support/worlds.hpp"
#include "transports/shm/shared_memory.hpp"
#include "transports/shm/shm_team.hpp"

namespace heddle::test {

class ScheduleWorld {
 public:
  ScheduleWorld(TopologyView topology, std::unique_ptr<World> world)
      : topology_(std::move(topology)), world_(std::move(world)) {
    ports_.resize(static_cast<std::size_t>(topology_.size()));
    for (std::int32_t node = 0; node < topology_.nodes(); ++node)
      add_team(topology_.members(node));
    for (int rank = 0; rank < topology_.size(); ++rank) {
      Ports& ports = of(rank);
      for (int peer = 0; peer < topology_.size(); ++peer)
        ports.transport_of.push_back(peer == rank ? nullptr : &world_->of(rank));
      ports.transports.push_back(&world_->of(rank));
    }
  }

  const TopologyView& topology() const { return topology_; }
  int size() const { return topology_.size(); }
  Ports& of(int rank) { return ports_[static_cast<std::size_t>(rank)]; }
  World& world() { return *world_; }

 private:
  void add_team(const std::vector<std::int32_t>& members) {
    if (members.size() < 2) return;
    const ShmTeamGeometry geometry{static_cast<int>(members.size()), 4096};
    memories_.push_back(SharedMemory::create(geometry.bytes(), SharedMemory::Backing::memfd).value());
    for (std::size_t m = 0; m < members.size(); ++m) {
      teams_.push_back(make_shm_team(memories_.back().data(), geometry, static_cast<int>(m)));
      of(members[m]).team = teams_.back().get();
    }
  }

  TopologyView topology_;
  std::unique_ptr<World> world_;
  std::vector<SharedMemory> memories_;
  std::vector<std::unique_ptr<Team>> teams_;
  std::vector<Ports> ports_;
};

// Polls all of them, in random order, until all are done. The error of the first that failed, or that they
// hang.
inline Status drive(const std::vector<Execution*>& executions, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Execution*> left(executions);
  for (int polls = 0; !left.empty(); ++polls) {
    const std::size_t i = random() % left.size();
    bool done = false;
    HEDDLE_TRY(left[i]->poll(&done));
    if (done) {
      left[i] = left.back();
      left.pop_back();
    }
    if (polls > 2'000'000) {
      const Waiting w = left[0]->waiting_for();
      return Status(Code::timeout, std::to_string(left.size()) + " executions hang; one waits for " +
                                       (w.on == Waiting::On::member ? "member " : "rank ") +
                                       std::to_string(w.who));
    }
  }
  return {};
}

}  // namespace heddle::test
