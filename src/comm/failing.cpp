// How a communicator fails.
#include <algorithm>
#include <iterator>
#include <string>

#include "comm/communicator_impl.hpp"

namespace heddle {
namespace {

// Messages that were given up and that their lender may go on with: their buffers are not the caller's yet,
// who has to know.
Status with_what_is_held(const Connections& connections, Status status) {
  std::string text;
  for (int rank = 0; rank < connections.topology.size(); ++rank) {
    std::string held = connections.internode.transport->trouble(rank);
    if (!held.empty()) text += "; " + held;
  }
  return text.empty() ? std::move(status) : Status(status.code(), status.message() + text);
}

}  // namespace

// What they have handed over, all of them on this node, is their callers' again where they wait for this rank
// no longer.
Status CommunicatorImpl::all_still_lend() {
  const int member = team_->withdrawn();
  return member < 0 ? Status() : fail(watch_.failed_without(watch_.rank_of_member(member, TeamKind::node)));
}

Status CommunicatorImpl::fail(Status status) {
  broken_ = status;
  for (const std::unique_ptr<ShmTeam>& each : connections_->teams) {
    if (each) each->withdraw();
  }
  lose_requests();
  if (connections_->internode.lent) status = broken_ = with_what_is_held(*connections_, std::move(status));
  std::fill(std::begin(by_team_), std::end(by_team_), 0);
  const Departure culprit = watch_.culprit_of(status);
  for (Transport* transport : connections_->ports.transports)
    transport->leave(culprit);
  return status;
}

Status CommunicatorImpl::failed_before() const {
  return Status(broken_.code(),
                "this communicator has failed before, and all that is left is to free it "
                "(heddle_comm_destroy or MPI_Comm_free). It failed with: " +
                    broken_.message());
}

}  // namespace heddle
