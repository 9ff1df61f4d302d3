// Runs the schedules of all ranks on numbers, with an adversary as the transport. Shares no code and no idea
// with the verifier: where that one reasons, this one tries. Any memory race, order or matching mistake that
// a real machine could turn into a wrong result has a chance to do so here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedule/schedule.hpp"
#include "schedule/topology_view.hpp"

namespace heddle::test {

// Everything the adversary chooses follows from the seed: which rank runs when, whether a message is copied
// out when its send is opened or read from the sender's memory when it is delivered, how late it is
// delivered, and whether an open receive's memory is scribbled over before that.
struct Trial {
  std::uint64_t seed = 0;
  bool in_place = false;
  bool rendezvous_only = false;  // no send completes before its receive was opened
};

// "" where every rank ends with the right numbers, else what went wrong.
std::string run_on_numbers(const TopologyView& topology, const std::vector<Schedule>& schedules,
                           const Trial& trial);

// What rank 0 ends with where each rank's elements are all the same number: elements are equal where they
// were folded alike. Of all schedules of one topology. Throws std::runtime_error with what went wrong.
std::vector<std::uint64_t> folds_of(const TopologyView& topology, const std::vector<Schedule>& schedules);

}  // namespace heddle::test
