// What the device reports as done.
#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "transports/verbs/verbs_transport.hpp"

namespace heddle::verbs {
namespace {

// Marks a work request's number as a receive's.
constexpr std::uint64_t kReceive = std::uint64_t{1} << 63;
constexpr int kBatch = 16;
// One call moves on after so many, whatever else comes.
constexpr int kMostAtOnce = 256;

// What becomes of a message to a queue pair that is no more, or that stands behind such a one. The memory of
// a process that ends goes before its queue pairs do.
bool is_closed(ibv_wc_status status) {
  return status == IBV_WC_RETRY_EXC_ERR || status == IBV_WC_WR_FLUSH_ERR || status == IBV_WC_REM_ACCESS_ERR ||
         status == IBV_WC_REM_INV_REQ_ERR || status == IBV_WC_REM_OP_ERR;
}

}  // namespace

Status VerbsTransport::open_receive(std::uint64_t number) {
  Block& block = receives_[number / kCreditsPerPeer];
  std::byte* const slot = block.memory.data() + (number % kCreditsPerPeer) * kSlotBytes;
  ibv_sge place{reinterpret_cast<std::uintptr_t>(slot), kSlotBytes, block.registered->lkey};
  ibv_recv_wr request{};
  request.wr_id = number | kReceive;
  request.sg_list = &place;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  if (const int err = ibv_post_srq_recv(shared_receives_.get(), &request, &bad); err != 0)
    return system_error(device_.name() + ": ibv_post_srq_recv", err);
  return {};
}

Status VerbsTransport::poll_completions() {
  ibv_wc works[kBatch];
  for (int taken = 0; taken < kMostAtOnce;) {
    const int n = ibv_poll_cq(completions_.get(), kBatch, works);
    if (n < 0) return fail(Status(Code::system, device_.name() + ": ibv_poll_cq failed"));
    for (int i = 0; i < n; ++i) {
      if (Status status = completed(works[i]); !status.ok()) return fail(std::move(status));
    }
    completed_ += static_cast<std::uint64_t>(n);
    if (n < kBatch) break;
    taken += n;
  }
  Status moved = move_starved();
  return moved.ok() ? moved : fail(std::move(moved));
}

// A slot that is free again may be what another one waited for.
Status VerbsTransport::move_starved() {
  if (starved_.empty() || free_slots_.empty()) return {};
  for (const int rank : std::exchange(starved_, {}))
    HEDDLE_TRY(move(at(rank)));
  return {};
}

Status VerbsTransport::completed(const ibv_wc& work) {
  const bool receive = (work.wr_id & kReceive) != 0;
  if (receive && work.status == IBV_WC_SUCCESS) return received(work);
  if (receive) {
    const auto rank = rank_of_queue_pair_.find(work.qp_num);
    if (rank == rank_of_queue_pair_.end())
      return Status(Code::system,
                    fmt::format("{}: a receive failed: {}", device_.name(), ibv_wc_status_str(work.status)));
    return failed_work(at(rank->second), Work::Kind::message, work.status);
  }
  Work done = works_[work.wr_id];
  works_[work.wr_id] = {};
  free_works_.push_back(static_cast<std::uint32_t>(work.wr_id));
  Peer& peer = at(done.peer);
  --peer.in_flight;
  if (done.kind == Work::Kind::message) --peer.undelivered;
  if (done.slot >= 0) free_slots_.push_back(done.slot);
  registrations_.give_back(done.lease);
  if (done.kind == Work::Kind::probe) peer.probing = false;
  if (work.status != IBV_WC_SUCCESS) return failed_work(peer, done.kind, work.status);
  peer.sign = true;
  if (done.kind != Work::Kind::probe) ++moved_;
  if (done.kind == Work::Kind::write) {
    const auto send = std::find_if(peer.long_sends.begin(), peer.long_sends.end(),
                                   [&](const LongSend& s) { return s.id == done.send; });
    if (send == peer.long_sends.end()) return Status(Code::internal, "a write of no message completed");
    --send->in_flight;
    send->written += done.bytes;
    if (send->written == send->bytes) {
      send->ticket->done = true;
      peer.long_sends.erase(send);
    }
  }
  return move(peer);
}

Status VerbsTransport::received(const ibv_wc& work) {
  const auto rank = rank_of_queue_pair_.find(work.qp_num);
  if (rank == rank_of_queue_pair_.end())
    return Status(Code::internal, "a message came over an unknown connection");
  Peer& peer = at(rank->second);
  peer.sign = true;
  ++moved_;
  if (!peer.handshake.is_open()) {
    peer.handshake.message_came();
    --connecting_;
  }
  if (!peer.credits.received()) return damaged(peer, "more messages than it had credits for");
  const std::uint64_t number = work.wr_id & ~kReceive;
  if (work.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
    HEDDLE_TRY(written_to(peer, ntohl(work.imm_data), work.byte_len));
  } else {
    const std::byte* const slot =
        receives_[number / kCreditsPerPeer].memory.data() + (number % kCreditsPerPeer) * kSlotBytes;
    HEDDLE_TRY(came(peer, slot, work.byte_len));
  }
  HEDDLE_TRY(open_receive(number));
  peer.credits.reopened();
  return move(peer);
}

// Of several only the first says what happened; the others were in the queue behind it.
Status VerbsTransport::failed_work(Peer& peer, Work::Kind kind, ibv_wc_status status) {
  // What ended this rank's own port is no peer's fault, whatever the message says that it ended. A device
  // that cannot send ends messages a moment before its port says that it is down.
  constexpr int kLooks = 20;
  constexpr std::chrono::milliseconds kBetween{5};
  for (int look = 0; status == IBV_WC_LOC_QP_OP_ERR && look < kLooks && device_.port_is_up(); ++look)
    std::this_thread::sleep_for(kBetween);
  if (!device_.port_is_up())
    return Status(Code::system, fmt::format("{} is down: rank {} cannot be reached ({})", device_.name(),
                                            peer.rank, ibv_wc_status_str(status)));
  if (is_closed(status) && !peer.waited_for() && peer.undelivered == 0 &&
      (kind == Work::Kind::header || kind == Work::Kind::probe)) {
    // A rank that is through with the communicator closes its end. What only serves the connection finds that
    // out, and nobody needs to know.
    peer.left = true;
    break_connection(peer);
    return {};
  }
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
      return lost(
          peer,
          "nothing acknowledges messages there: its process or its host has ended, or the network is down");
    case IBV_WC_WR_FLUSH_ERR:
      return lost(peer, "the connection broke");
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_OP_ERR:
      return lost(peer, fmt::format("it does not take a message any more: {}", ibv_wc_status_str(status)));
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return Status(Code::internal,
                    fmt::format("{}: rank {} had no receive open for a message", device_.name(), peer.rank));
    default:
      return Status(Code::peer_failed, fmt::format("{}: a message to rank {} failed: {}", device_.name(),
                                                   peer.rank, ibv_wc_status_str(status)));
  }
}

}  // namespace heddle::verbs
