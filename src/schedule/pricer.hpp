// The pricer: what a schedule costs, by running it over a LogGP-style model of the machine.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "base/cost.hpp"
#include "schedule/schedule.hpp"
#include "schedule/topology_view.hpp"

namespace heddle {

// One level of the machine, after LogGP (Alexandrov, Ionescu, Schauser, Scheiman, SPAA 1995). A message of n
// bytes between ranks that first share level l occupies the sender's processor for `overhead_ns`, then the
// link of sender and of receiver for gap.at(n) each, the receiver's `latency_ns` later. Between nodes the
// bytes also hold the links of both nodes, which all ranks of a node share. The receiver's link takes it in
// once the receive is open, and until then the send is not complete. Where ranks share cores it takes in none
// in less than `least_gap_ns`: they wait for their turns there. Who sends goes on, as the root of a bcast
// does.
struct LevelCost {
  double latency_ns = 0;
  double overhead_ns = 0;
  LinearCost gap;
  double least_gap_ns = 0;

  double receive_gap_ns(double bytes) const { return std::max(gap.at(bytes), least_gap_ns); }
};

// levels[0]: both ranks on one node; levels[k]: ranks whose groups first agree at level k of the topology
// view; the last entry serves everything beyond.
struct CostModel {
  std::vector<LevelCost> levels;
  double crossing = 0;  // MessageCost's, of the last level
  LinearCost fold;      // reducing n bytes of one operand into another
  LinearCost copy;      // copying n bytes
  // By TeamKind. A team verb of m members on n bytes starts when the last one enters and keeps all of them
  // until it is done: for the cheaper of m * small.at(n), everybody reads everybody's vector, and m *
  // large.fixed_ns + n * large.per_byte_ns, staged: flags of each member, and everybody moves about one
  // vector in and out. Of an allgather n bytes are all members' together, of which everybody writes its own
  // and reads the others', half of that (two members took 0.57 to 0.85 of an allreduce's time).
  struct TeamCost {
    LinearCost small;
    LinearCost large;
  };
  std::array<TeamCost, kTeamKinds> team;
};

// Instead of a vector of fixed size: streams, which grow as more ranks' entries meet in them. By the number
// of contributions, 0 to the number of ranks, of a stream of the whole vector; chunks take equal shares.
struct StreamCosts {
  std::vector<double> entries;
  std::vector<double> bytes;     // on the wire
  double code_ns_per_entry = 0;  // to write it for the wire, and as much to read it
  double fold_ns_per_entry = 0;  // of each operand
};

// What a message between two ranks costs, and the nanoseconds of a team verb.
const LevelCost& level_cost(const TopologyView& topology, const CostModel& model, std::int32_t a,
                            std::int32_t b);
double team_verb_ns(const Step& step, double bytes, std::size_t members, const CostModel& model);

using ScheduleOf = std::function<Schedule(std::int32_t rank)>;

// Nanoseconds until the last rank has finished, when all start together, for a vector of `bytes`. Asks for
// each rank's schedule once. The same arguments give the same price, on every machine with IEEE arithmetic,
// so ranks may agree on a choice by pricing alone. The schedules must pass the verifier; where they deadlock
// the price is infinite. A price above `give_up_ns` may be any that is above it and not above the true one:
// whoever knows a better one need not wait for it.
double price(const TopologyView& topology, const ScheduleOf& schedule_of, std::size_t bytes,
             const CostModel& model, double give_up_ns = std::numeric_limits<double>::infinity());

// Nanoseconds until this rank has finished, if its peers were always as far as it is: each of its receives
// meets a message that left with its own send of the same number on that lane, or, where there is no such
// send yet, when the receive was opened. For algorithms in which all ranks do the same (recursive doubling,
// ring) that is the price of the whole; for trees it leaves out waiting for what comes from further away.
// Takes the same time for any number of iterations.
double price_alone(const TopologyView& topology, const Schedule& schedule, std::int32_t rank,
                   std::size_t bytes, const CostModel& model);

// The same for streams. Schedules without team verbs.
double price_streams(const TopologyView& topology, const ScheduleOf& schedule_of, const StreamCosts& streams,
                     const CostModel& model, double give_up_ns = std::numeric_limits<double>::infinity());

}  // namespace heddle
