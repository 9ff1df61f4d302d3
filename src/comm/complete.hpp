// Waiting for one execution of a blocking collective.
#pragma once

#include <utility>

#include "comm/communicator_impl.hpp"

namespace heddle {

// All active requests move as well, at least once: also where this is over at the first look.
template <typename Executes>
Status CommunicatorImpl::complete(Executes& execution, const TeamCall& call) {
  const auto poll = [&](bool* done) -> Status {
    HEDDLE_TRY(execution.poll(done));
    return *done && active_.empty() && turns_.empty() ? Status() : move_requests();
  };
  const auto look = [&](Patience& patience) -> Status {
    HEDDLE_TRY(compare_waiting(call));
    return watch_.inspect(execution.waiting_for(), patience);
  };
  Status status = without_throwing([&] { return wait_until_done(policy_, poll, look); });
  leave_to_thread();
  if (status.ok()) return status;
  execution.abandon();
  return fail(std::move(status));
}

}  // namespace heddle
