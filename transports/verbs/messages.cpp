// The protocol over a connection: short messages with their content, long ones announced, granted and
// written.
#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>

#include "transports/verbs/verbs_transport.hpp"

namespace heddle::verbs {
namespace {

// A long message goes in windows, so that memory is registered for the next one while the last one travels,
// and little at a time.
constexpr std::uint64_t kWindowBytes = std::uint64_t{512} << 10;
constexpr std::size_t kWindows = 2;

template <typename Items>
auto find_id(Items& items, std::uint32_t id) {
  return std::find_if(items.begin(), items.end(), [id](const auto& item) { return item.id == id; });
}

}  // namespace

Status VerbsTransport::move(Peer& peer) {
  if (!failed_.ok()) return failed_;
  if (!peer.handshake.is_open() || peer.left) return {};
  HEDDLE_TRY(move_answers(peer));
  HEDDLE_TRY(move_writes(peer));
  HEDDLE_TRY(move_queue(peer));
  if (!peer.credits.should_return() || !peer.credits.may_return()) return {};
  bool posted = false;
  return post_header(peer, {.kind = Header::Kind::credit}, nullptr, posted);
}

Status VerbsTransport::move_answers(Peer& peer) {
  while (!peer.answers.empty() && peer.credits.may_send()) {
    bool posted = false;
    HEDDLE_TRY(post_header(peer, peer.answers.front(), nullptr, posted));
    if (!posted) return {};
    peer.answers.pop();
  }
  return {};
}

bool VerbsTransport::fits_slot(const Peer& peer, std::uint64_t bytes) const {
  return bytes <= peer.slot_bytes - kHeaderBytes;
}

// By the host, where that takes less than to ask for room and have the device write there: not out of or into
// a GPU.
bool VerbsTransport::is_copied(const Peer& peer, const std::byte* data, std::uint64_t bytes) const {
  return fits_slot(peer, bytes) && on_device(data) == nullptr;
}

Status VerbsTransport::move_writes(Peer& peer) {
  while (!peer.writes.empty() && peer.credits.may_send() && peer.in_flight < kSendDepth) {
    const Write granted = peer.writes.front();
    const auto send = find_id(peer.long_sends, granted.send);
    bool posted = true;
    if (send == peer.long_sends.end()) {
      peer.answers.push({.kind = Header::Kind::refuse, .id = granted.receive});
    } else if (granted.address == 0) {
      HEDDLE_TRY(send_content(peer, granted, posted));
    } else {
      HEDDLE_TRY(write(peer, *send, granted));
    }
    if (!posted) return {};
    peer.writes.pop();
  }
  return {};
}

Status VerbsTransport::send_content(Peer& peer, const Write& granted, bool& posted) {
  const auto send = find_id(peer.long_sends, granted.send);
  posted = false;
  HEDDLE_TRY(post_header(peer, {.kind = Header::Kind::content, .id = granted.receive, .bytes = send->bytes},
                         send->data, posted));
  if (!posted) return {};
  send->ticket->done = true;
  peer.long_sends.erase(send);
  return {};
}

Status VerbsTransport::move_queue(Peer& peer) {
  while (!peer.queue.empty() && peer.credits.may_send()) {
    const Outgoing message = peer.queue.front();
    const std::uint64_t kept = message.bytes + kKeptOverhead;
    const bool eager =
        message.bytes == 0 || (is_copied(peer, message.data, message.bytes) && peer.window.fits(kept));
    Header header;
    header.kind = eager ? Header::Kind::eager : Header::Kind::announce;
    header.tag = message.tag;
    header.bytes = message.bytes;
    header.id = eager ? 0 : peer.next_id;
    bool posted = false;
    HEDDLE_TRY(post_header(peer, header, eager ? message.data : nullptr, posted));
    if (!posted) return {};
    peer.queue.pop();
    if (eager) {
      peer.window.sent(kept);
      message.ticket->done = true;
    } else {
      peer.long_sends.push_back(
          {.id = peer.next_id++, .data = message.data, .bytes = message.bytes, .ticket = message.ticket});
    }
  }
  return {};
}

// Not posted: something is in use that a completion frees.
Status VerbsTransport::post_header(Peer& peer, Header header, const std::byte* content, bool& posted) {
  const std::size_t head = header_bytes(header.kind);
  const std::size_t bytes = head + (content != nullptr ? header.bytes : 0);
  const bool inlined = bytes <= peer.inline_bytes;
  if (peer.in_flight >= kSendDepth) return {};
  if (!inlined && free_slots_.empty()) {
    if (std::find(starved_.begin(), starved_.end(), peer.rank) == starved_.end())
      starved_.push_back(peer.rank);
    return {};
  }
  header.credits = peer.credits.take_owed();
  header.sequence = peer.sent++;
  header.matched = peer.matched;

  const bool is_message = header.kind == Header::Kind::eager || header.kind == Header::Kind::content;
  std::byte small[256];
  Work work{.kind = is_message ? Work::Kind::message : Work::Kind::header, .peer = peer.rank};
  std::byte* at = small;
  if (!inlined) {
    work.slot = free_slots_.back();
    free_slots_.pop_back();
    at = send_slots_.memory.data() + static_cast<std::size_t>(work.slot) * kSlotBytes;
  }
  encode(header, at);
  if (content != nullptr) take_out(at + head, content, header.bytes);
  ibv_sge from{reinterpret_cast<std::uintptr_t>(at), static_cast<std::uint32_t>(bytes),
               send_slots_.registered->lkey};
  ibv_send_wr request{};
  request.opcode = IBV_WR_SEND;
  request.sg_list = &from;
  request.num_sge = 1;
  request.send_flags = inlined ? IBV_SEND_INLINE : 0;
  peer.credits.sent();
  posted = true;
  return post(peer, request, work);
}

Status VerbsTransport::post(Peer& peer, ibv_send_wr& request, const Work& work) {
  if (free_works_.empty()) {
    free_works_.push_back(static_cast<std::uint32_t>(works_.size()));
    works_.emplace_back();
  }
  const std::uint32_t number = free_works_.back();
  free_works_.pop_back();
  works_[number] = work;
  request.wr_id = number;
  request.send_flags |= IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  if (const int err = ibv_post_send(peer.queue_pair.get(), &request, &bad); err != 0)
    return fail(system_error(fmt::format("{}: ibv_post_send to rank {}", device_.name(), peer.rank), err));
  if (peer.in_flight++ == 0) peer.idle = true;
  if (work.kind == Work::Kind::message) ++peer.undelivered;
  return {};
}

Status VerbsTransport::write(Peer& peer, LongSend& send, const Write& granted) {
  Result<Registrations::Lease> lease = registrations_.take(send.data + granted.offset, granted.bytes, false);
  if (!lease.ok()) return fail(lease.status());
  ibv_sge from{reinterpret_cast<std::uintptr_t>(send.data + granted.offset),
               static_cast<std::uint32_t>(granted.bytes), lease.value().keys.local};
  ibv_send_wr request{};
  request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  request.sg_list = &from;
  request.num_sge = 1;
  request.imm_data = htonl(granted.receive);
  request.wr.rdma = {.remote_addr = granted.address, .rkey = granted.key};
  peer.credits.sent();
  ++send.in_flight;
  return post(peer, request,
              {.kind = Work::Kind::write,
               .peer = peer.rank,
               .send = send.id,
               .bytes = granted.bytes,
               .lease = lease.value()});
}

Status VerbsTransport::damaged(const Peer& peer, const char* what) const {
  return Status(Code::internal, fmt::format("{}: what comes from rank {} makes no sense: {}", device_.name(),
                                            peer.rank, what));
}

Status VerbsTransport::came(Peer& peer, const std::byte* bytes, std::size_t length) {
  const std::optional<Header> header = parse_header(bytes, length);
  if (!header) return damaged(peer, "no header");
  if (header->sequence != peer.came++) return damaged(peer, "a header is missing or came twice");
  if (!peer.credits.returned(header->credits)) return damaged(peer, "more credits than there are");
  if (!peer.window.told(header->matched)) return damaged(peer, "it has received what was not sent");
  switch (header->kind) {
    case Header::Kind::eager:
    case Header::Kind::announce:
      return came_message(peer, *header, bytes + kHeaderBytes);
    case Header::Kind::grant:
      return came_grant(peer, *header);
    case Header::Kind::refuse:
      return came_refusal(peer, *header);
    case Header::Kind::content:
      return came_content(peer, *header, bytes + kHeaderBytes);
    case Header::Kind::credit:
      return {};
  }
  return damaged(peer, "an unknown kind of header");
}

Status VerbsTransport::came_message(Peer& peer, const Header& header, const std::byte* content) {
  Arrival arrival;
  arrival.tag = header.tag;
  arrival.bytes = header.bytes;
  arrival.announced = header.kind == Header::Kind::announce;
  arrival.id = header.id;
  const auto receive = std::find_if(peer.receives.begin(), peer.receives.end(),
                                    [&](const Receive& r) { return r.tag == header.tag; });
  if (receive != peer.receives.end()) {
    const Receive found = *receive;
    peer.receives.erase(receive);
    return give(found, peer, arrival, content);
  }
  if (!arrival.announced) arrival.content.assign(content, content + header.bytes);
  peer.arrivals.push(std::move(arrival));
  return {};
}

Status VerbsTransport::give(const Receive& receive, Peer& peer, Arrival& arrival, const std::byte* content) {
  if (arrival.bytes != receive.bytes)
    return fail(Status(Code::invalid_argument, fmt::format("rank {} sent {} bytes where this rank expects {}",
                                                           peer.rank, arrival.bytes, receive.bytes)));
  if (!arrival.announced) {
    put_in(receive.data, content, arrival.bytes);
    peer.matched += arrival.bytes + kKeptOverhead;
    receive.ticket->done = true;
    return {};
  }
  if (arrival.bytes == 0) return fail(damaged(peer, "an announcement of nothing"));
  LongReceive& begun = peer.long_receives.emplace_back();
  begun.id = peer.next_id++;
  begun.sender_id = arrival.id;
  begun.data = receive.data;
  begun.bytes = receive.bytes;
  begun.ticket = receive.ticket;
  return grant(peer, begun);
}

Status VerbsTransport::grant(Peer& peer, LongReceive& receive) {
  if (is_copied(peer, receive.data, receive.bytes)) {
    receive.granted = receive.bytes;
    peer.answers.push({.kind = Header::Kind::grant,
                       .id = receive.sender_id,
                       .bytes = receive.bytes,
                       .receive = receive.id});
    return {};
  }
  while (receive.granted < receive.bytes && receive.open.size() < kWindows) {
    const std::uint64_t bytes = std::min(kWindowBytes, receive.bytes - receive.granted);
    std::byte* const to = receive.data + receive.granted;
    Result<Registrations::Lease> lease = registrations_.take(to, bytes, true);
    if (!lease.ok()) return fail(lease.status());
    peer.answers.push({.kind = Header::Kind::grant,
                       .id = receive.sender_id,
                       .bytes = bytes,
                       .address = reinterpret_cast<std::uintptr_t>(to),
                       .offset = receive.granted,
                       .key = lease.value().keys.remote,
                       .receive = receive.id});
    receive.open.push({lease.value(), bytes});
    receive.granted += bytes;
  }
  return {};
}

Status VerbsTransport::came_grant(Peer& peer, const Header& header) {
  const auto send = find_id(peer.long_sends, header.id);
  if (send == peer.long_sends.end()) {
    peer.answers.push({.kind = Header::Kind::refuse, .id = header.receive});
    return {};
  }
  if (header.offset != send->granted || header.bytes > send->bytes - send->granted ||
      header.bytes > kWindowBytes)
    return damaged(peer, "a grant that does not fit its message");
  if (header.address == 0 && (header.bytes != send->bytes || !fits_slot(peer, header.bytes)))
    return damaged(peer, "a grant of content to a long message");
  send->granted += header.bytes;
  peer.writes.push({header.id, header.receive, header.address, header.offset, header.bytes, header.key});
  return {};
}

Status VerbsTransport::came_content(Peer& peer, const Header& header, const std::byte* content) {
  const auto found = find_id(peer.long_receives, header.id);
  if (found == peer.long_receives.end()) return {};  // cancelled meanwhile
  if (header.bytes != found->bytes || !found->open.empty())
    return damaged(peer, "a content of another length");
  put_in(found->data, content, header.bytes);
  found->ticket->done = true;
  peer.long_receives.erase(found);
  return {};
}

Status VerbsTransport::came_refusal(Peer& peer, const Header& header) {
  if (find_id(peer.long_receives, header.id) == peer.long_receives.end()) return {};
  return Status(Code::peer_failed, fmt::format("rank {} gave up a message that it had announced", peer.rank));
}

// The oldest window of the receive is full: writes arrive in the order of their grants.
Status VerbsTransport::written_to(Peer& peer, std::uint32_t receive, std::uint64_t bytes) {
  const auto found = find_id(peer.long_receives, receive);
  if (found == peer.long_receives.end() || found->open.empty())
    return damaged(peer, "a write to a message that is not open");
  Granted& window = found->open.front();
  if (bytes != window.bytes) return damaged(peer, "a write of another length than its window");
  registrations_.give_back(window.lease);
  found->arrived += window.bytes;
  found->open.pop();
  if (found->arrived < found->bytes) return grant(peer, *found);
  found->ticket->done = true;
  peer.long_receives.erase(found);
  return {};
}

}  // namespace heddle::verbs
