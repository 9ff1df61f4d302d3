// All ranks of a topology in one process, ready to execute schedules: transports between all of them and a
// teams of every node. Ranks are moved by one thread, in random order: quick, and a hang is a count that runs
// out.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/engine.hpp"
#include "schedule/topology_view.hpp"
#include "support/topology_teams.hpp"
#include "support/worlds.hpp"

namespace heddle::test {

class ScheduleWorld {
 public:
  ScheduleWorld(TopologyView topology, std::unique_ptr<World> world)
      : topology_(std::move(topology)), world_(std::move(world)) {
    ports_.resize(static_cast<std::size_t>(topology_.size()));
    teams_.connect(topology_, ports_);
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
  TopologyView topology_;
  std::unique_ptr<World> world_;
  TopologyTeams teams_;
  std::vector<Ports> ports_;
};

// Polls all of them, in random order, until all are done. The error of the first that failed, or that they
// hang.
template <typename Executes>
Status drive(const std::vector<Executes*>& executions, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Executes*> left(executions);
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
