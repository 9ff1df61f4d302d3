// What a rank knows of those it waits for: who is missing, and whether the wait is hopeless.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/status.hpp"
#include "engine/ports.hpp"
#include "engine/waiter.hpp"
#include "schedule/topology_view.hpp"
#include "setup/setup.hpp"
#include "transports/team.hpp"
#include "transports/transport.hpp"

namespace heddle {

// One thread at a time. The arguments of the constructor outlive it.
class PeerWatch {
 public:
  // `compares`: the ranks' calls are compared anyway (HEDDLE_CHECK).
  PeerWatch(int rank, const Connections& connections, const WaitPolicy& policy, const Log& log, bool compares)
      : rank_(rank), connections_(connections), policy_(policy), log_(log), compares_(compares) {}

  // Whether the rank waited for is the cause, or may wait for another one itself; or is to send or to receive
  // a message, which no comparison of calls knows of.
  enum class Blame : std::uint8_t { sure, likely, partner };
  // Ends a wait that a dead peer or the deadline makes hopeless. `passed`: as in Waiting.
  // `warns_after`: that many times the time of a warning.
  Status inspect(int missing_rank, Blame blame, Patience& patience, std::uint64_t passed = 0,
                 int warns_after = 1);
  // Also where a rank waits in another call.
  Status inspect(const Waiting& waiting, Patience& patience);
  // `invalid_argument` where another rank of this node waits in another one than `call`, in its call of the
  // same number. The root is a rank.
  Status compare_waiting(std::uint64_t number, const TeamCall& call) const;

  bool is_gone(int rank) const;
  // `rank` takes part no longer.
  Status failed_without(int rank) const;
  int rank_of_member(int member, TeamKind team) const;
  // For whose sake this rank fails with `status`, where that is known.
  Departure culprit_of(const Status& status);

 private:
  void see_movement(Patience& patience, std::uint64_t passed);
  // Roots are ranks.
  Status different_calls(int rank, const TeamCall& theirs, const TeamCall& ours) const;
  std::string name_of(int rank) const;
  bool has_left(int rank) const;
  Departure left_for(int rank) const;
  std::string also_gone(int besides) const;
  std::string trouble_with(int rank) const;
  Status failed_for(int rank, const Departure& why) const;

  const int rank_;
  const Connections& connections_;
  const WaitPolicy& policy_;
  const Log& log_;
  const bool compares_;
  Departure culprit_;
  Departure late_;           // who had not come when the deadline of a wait was last over
  std::uint64_t moved_ = 0;  // by this rank's messages, at the last look of any wait
  TimePoint looked_;         // when that was
};

}  // namespace heddle
