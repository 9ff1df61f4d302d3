// What a rank's executions of schedules run on, and whom they wait for there.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/status.hpp"
#include "schedule/schedule.hpp"
#include "transports/team.hpp"
#include "transports/transport.hpp"

namespace heddle {

// What a schedule runs on: one rank's connections. Borrowed; outlives every execution.
struct Ports {
  std::vector<Transport*> transport_of;   // per peer rank; null where no step may go
  std::vector<Transport*> transports;     // each distinct one once, for progress
  std::array<Team*, kTeamKinds> teams{};  // by TeamKind: this rank's; null: it is alone there
};

// For who waits in shared memory alone: somebody else may wait for the end of what was sent before, and those
// who are waited for here for that one.
inline Status move_unsettled(const Ports& ports) {
  for (Transport* const transport : ports.transports) {
    if (transport->unsettled_bytes() > 0 && !transport->settled()) HEDDLE_TRY(transport->progress());
  }
  return {};
}

// Whom an execution waits for: a rank of the communicator, a member of one of its teams, or nobody.
struct Waiting {
  enum class On : std::uint8_t { nobody, rank, member } on = On::nobody;
  int who = -1;
  TeamKind team = TeamKind::node;
  TeamClash clash{};         // it waits in vain
  std::uint64_t passed = 0;  // of a team's operation: Team::passed()
};

}  // namespace heddle
