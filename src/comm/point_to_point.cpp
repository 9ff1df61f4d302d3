// Messages of the communicator's callers, beside its collectives.
#include <fmt/format.h>

#include <utility>

#include "comm/communicator_impl.hpp"

namespace heddle {

Status CommunicatorImpl::transfer(bool sends, void* data, std::size_t bytes, int peer) {
  if (!broken_.ok()) return failed_before();
  Transport* transport = connections_->ports.transport_of[static_cast<std::size_t>(peer)];
  if (transport == nullptr)
    return Status(Code::unsupported, fmt::format("no transport reaches rank {}", peer));
  constexpr std::uint32_t kTag = kSequences * kLanes;
  Ticket ticket;
  const auto poll = [&](bool* done) -> Status {
    if (!ticket.done) HEDDLE_TRY(transport->progress());
    *done = ticket.done;
    return *done && active_.empty() && turns_.empty() ? Status() : move_requests();
  };
  Status status = without_throwing([&]() -> Status {
    HEDDLE_TRY(sends ? transport->send(peer, kTag, data, bytes, ticket)
                     : transport->recv(peer, kTag, data, bytes, ticket));
    return wait_until_done(policy_, poll, [&](Patience& patience) {
      return watch_.inspect(peer, PeerWatch::Blame::partner, patience);
    });
  });
  leave_to_thread();
  if (status.ok()) return status;
  transport->cancel(ticket);
  return fail(std::move(status));
}

Status CommunicatorImpl::send(const void* data, std::size_t bytes, int peer) {
  const Turn turn(asked_);
  return transfer(true, const_cast<void*>(data), bytes, peer);
}

Status CommunicatorImpl::recv(void* data, std::size_t bytes, int peer) {
  const Turn turn(asked_);
  return transfer(false, data, bytes, peer);
}

}  // namespace heddle
