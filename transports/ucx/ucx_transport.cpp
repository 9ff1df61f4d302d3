#include "transports/ucx/ucx_transport.hpp"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "base/clock.hpp"
#include "transports/ucx/ucx_messages.hpp"

namespace heddle {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Less than the send buffer that a socket begins with (tcp_wmem), and what a small message takes of it
// besides its content.
constexpr std::size_t kSocketTakes = 8192;
constexpr std::size_t kHeaderBytes = 64;
// UCX keeps all that comes before its receive, short messages with their content. So that one peer need not
// keep more than about so much of this rank's, a send after so many bytes is not done before its receive is
// open.
constexpr std::size_t kMostUnmatched = std::size_t{16} << 20;
// UCX calls a TCP connection flushed when the peer has said so, and a peer may be busy elsewhere for long:
// after this the connection ends as it is. What was sent is with the kernels then, which deliver it, unless
// megabytes were waiting.
constexpr milliseconds kCloseFor{200};
// UCX does not tell how far a message is, but whether it had something to do. Where it has had that without
// such a gap, for so long, a message moves; peers that are only asked whether they are alive take moments,
// every some seconds.
constexpr std::int64_t kGapMs = 200;
constexpr std::int64_t kBusyForMs = 500;
// How long giving up waits for UCX, by the gentle way and by closing the connection.
constexpr milliseconds kCancelFor{20};
constexpr milliseconds kDropFor{2000};

// UCX matches messages of one endpoint and one tag in the order in which they were sent, and receives of one
// tag in the order in which they were opened; every message to a peer takes the one endpoint to it, so that
// messages match in order per sender and tag.
constexpr ucp_tag_t kWholeTag = ~ucp_tag_t{0};
ucp_tag_t ucx_tag(int sender, std::uint32_t tag) {
  return ucp_tag_t{static_cast<std::uint32_t>(sender)} << 32 | tag;
}

// UCX, which knows of no other memory then, need not look where it is.
void lies_on_host(ucp_request_param_t& param) {
  param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
}

}  // namespace

UcxMessages::UcxMessages(UcxWorker& worker, int rank, std::vector<UcxAddress> addresses)
    : worker_(worker), rank_(rank), peers_(addresses.size()) {
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    peers_[i].owner = this;
    peers_[i].rank = static_cast<int>(i);
    peers_[i].host = std::move(addresses[i].host);
    peers_[i].address = std::move(addresses[i].worker);
  }
  capabilities_.name = "ucx";
  capabilities_.cost = {10000, 0.2};
  capabilities_.sends_later = true;
  takes_device_memory_ = worker.context().device_memory();
}

// ---- Messages

UcxOpen& UcxMessages::remember(Ticket& ticket, UcxPeer& peer, std::size_t bytes, bool receives) {
  if (free_.empty()) free_.push_back(&pool_.emplace_back());
  UcxOpen& open = *free_.back();
  free_.pop_back();
  open = {&ticket, &peer, &open, bytes, receives ? coarse_ms() : 0, receives, open_.size()};
  open_.push_back(&open);
  ticket.words[0] = reinterpret_cast<std::uintptr_t>(&open);
  return open;
}

void UcxMessages::forget(UcxOpen& open) {
  open_[open.place] = open_.back();
  open_[open.place]->place = open.place;
  open_.pop_back();
  open.request = nullptr;
  free_.push_back(&open);
}

Status UcxMessages::wrong_length(const UcxOpen& open, std::size_t length) const {
  return different_length(fmt::format("rank {} on {}", open.peer->rank, open.peer->host), length, open.bytes);
}

void UcxMessages::complete(UcxOpen& open, ucs_status_t status, std::size_t length) {
  if (open.ticket != nullptr) {
    Status outcome;
    if (status == UCS_ERR_MESSAGE_TRUNCATED || (status == UCS_OK && open.receives && length != open.bytes))
      outcome = wrong_length(open, length);
    else if (status != UCS_OK)
      outcome = failed(*open.peer, open.peer->failure != UCS_OK ? open.peer->failure : status);
    open.ticket->words[0] = 0;
    if (outcome.ok()) {
      open.ticket->done = true;
      ++moved_;
    } else if (error_.ok()) {
      // Who gives up a message closes its endpoint, which ends others there: nobody else is to blame for
      // that.
      if (outcome.code() == Code::peer_failed && status != UCS_ERR_CANCELED) culprit_ = open.peer->rank;
      error_ = std::move(outcome);
    }
  }
  forget(open);
}

void UcxMessages::on_sent(void* request, ucs_status_t status, void* argument) {
  UcxOpen& open = *static_cast<UcxOpen*>(argument);
  open.peer->owner->complete(open, status, 0);
  ucp_request_free(request);
}

void UcxMessages::on_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                              void* argument) {
  UcxOpen& open = *static_cast<UcxOpen*>(argument);
  open.peer->owner->complete(open, status,
                             status == UCS_OK || status == UCS_ERR_MESSAGE_TRUNCATED ? info->length : 0);
  ucp_request_free(request);
}

// What UCX did with it at once: all of it, by its callback or without, or nothing yet.
Status UcxMessages::opened(UcxOpen& open, ucs_status_ptr_t request) {
  if (open.request == nullptr) return error_;
  if (UCS_PTR_IS_PTR(request)) {
    open.request = request;
    return {};
  }
  complete(open, UCS_PTR_STATUS(request), open.bytes);
  return error_;
}

Status UcxMessages::send(int to, std::uint32_t tag, const void* data, std::size_t bytes, Ticket& ticket) {
  if (!error_.ok()) return error_;
  UcxPeer& peer = peer_of(to);
  if (peer.endpoint == nullptr || peer.failure != UCS_OK) [[unlikely]]
    HEDDLE_TRY(connect(peer));
  peer.sent = true;
  const bool listed = peer.unflushed > kSocketTakes || peer.flush != nullptr;
  peer.unflushed += bytes + kHeaderBytes;
  if (!listed && peer.unflushed > kSocketTakes) unsettled_.push_back(&peer);
  UcxOpen& open = remember(ticket, peer, bytes, false);
  ucp_request_param_t param;
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = &UcxMessages::on_sent;
  param.user_data = &open;
  if (!takes_device_memory_) lies_on_host(param);
  const bool waits = peer.unmatched > kMostUnmatched;
  peer.unmatched = waits ? 0 : peer.unmatched + bytes + kHeaderBytes;
  const auto start = waits ? &ucp_tag_send_sync_nbx : &ucp_tag_send_nbx;
  return opened(open, start(peer.endpoint, data, bytes, ucx_tag(rank_, tag), &param));
}

Status UcxMessages::recv(int from, std::uint32_t tag, void* data, std::size_t bytes, Ticket& ticket) {
  if (!error_.ok()) return error_;
  UcxPeer& peer = peer_of(from);
  UcxOpen& open = remember(ticket, peer, bytes, true);
  ucp_request_param_t param;
  // UCX 1.13 tells the length to the callback alone.
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.cb.recv = &UcxMessages::on_received;
  param.user_data = &open;
  if (!takes_device_memory_) lies_on_host(param);
  const ucs_status_ptr_t request =
      ucp_tag_recv_nbx(worker_.handle(), data, bytes, ucx_tag(from, tag), kWholeTag, &param);
  HEDDLE_TRY(opened(open, request));
  // What came before the sender was gone is still there to be had, and nothing else.
  if (!ticket.done && peer.failure != UCS_OK) {
    cancel(ticket);
    return failed(peer, peer.failure);
  }
  return {};
}

// UCX finds out by itself how to get there, and by what: nothing is measured.
Result<DeviceReach> UcxMessages::add_memory(const DeviceMemory& /*memory*/) {
  if (takes_device_memory_) return DeviceReach{};
  return Status(Code::unsupported, "this UCX knows nothing of GPUs (it was built without CUDA)");
}

Status UcxMessages::progress() {
  if (!error_.ok()) return error_;
  if (ucp_worker_progress(worker_.handle()) != 0) note_movement();
  if (!error_.ok() || peer_failed_) [[unlikely]]
    return look_at_failures();
  if (!open_.empty() && coarse_ms() >= next_watch_ms_) [[unlikely]]
    return watch_senders();
  return {};
}

void UcxMessages::note_movement() {
  const std::int64_t now = coarse_ms();
  if (now - busy_ms_ > kGapMs) busy_since_ms_ = now;
  busy_ms_ = now;
  if (now - busy_since_ms_ >= kBusyForMs) ++moved_;
}

// UCX completes a send that it has copied, and sockets take only so much. There is no asking how much of it
// they have: a flush asks the peer, and is not worth it for what a socket takes in any case.
std::size_t UcxMessages::unsettled_bytes() const {
  std::size_t bytes = 0;
  for (const UcxPeer* peer : unsettled_)
    bytes += peer->unflushed + peer->flushing;
  return bytes;
}

bool UcxMessages::settled() {
  while (!unsettled_.empty() && flushed(*unsettled_.back()))
    unsettled_.pop_back();
  return unsettled_.empty();
}

bool UcxMessages::flushed(UcxPeer& peer) {
  if (peer.flush != nullptr) {
    if (ucp_request_check_status(peer.flush) == UCS_INPROGRESS) return false;
    ucp_request_free(std::exchange(peer.flush, nullptr));
    peer.flushing = 0;
  }
  if (peer.unflushed <= kSocketTakes) return true;
  const std::size_t bytes = std::exchange(peer.unflushed, 0);
  if (peer.endpoint == nullptr || peer.failure != UCS_OK) return true;
  const ucp_request_param_t param{};
  const ucs_status_ptr_t request = ucp_ep_flush_nbx(peer.endpoint, &param);
  if (!UCS_PTR_IS_PTR(request)) return true;
  peer.flush = request;
  peer.flushing = bytes;
  return false;
}

bool UcxMessages::arm() {
  return error_.ok() && !peer_failed_ && ucp_worker_arm(worker_.handle()) == UCS_OK;
}

// ---- Giving up, and the end

template <typename Condition>
bool UcxMessages::progress_until(Condition condition, milliseconds limit) {
  const auto deadline = steady_clock::now() + limit;
  while (!condition()) {
    // By the clock alone: others' messages may keep UCX busy for ever.
    if (steady_clock::now() > deadline) return false;
    ucp_worker_progress(worker_.handle());
  }
  return true;
}

void UcxMessages::cancel(Ticket& ticket) {
  if (ticket.done || ticket.words[0] == 0) return;
  // The record of a ticket that is not done is its own.
  UcxOpen& open = *reinterpret_cast<UcxOpen*>(static_cast<std::uintptr_t>(ticket.words[0]));
  open.ticket->words[0] = 0;
  open.ticket = nullptr;
  if (worker_.handle() != nullptr) release(open);
}

// UCX can take back a receive that has met no message. The rest ends with the connection, and if UCX does not
// let go even then, with the worker: this object has failed, or its owner would not give up.
void UcxMessages::release(UcxOpen& open) {
  const auto let_go = [&] { return open.request == nullptr; };
  if (open.receives) {
    ucp_request_cancel(worker_.handle(), open.request);
    if (progress_until(let_go, kCancelFor)) return;
  }
  UcxPeer& peer = *open.peer;
  if (peer.endpoint == nullptr && peer.failure == UCS_OK) (void)connect(peer);
  close(peer, true);
  if (peer.failure == UCS_OK) peer.failure = UCS_ERR_CANCELED;
  if (progress_until(let_go, kDropFor)) return;
  drop_worker();
  if (error_.ok()) error_ = Status(Code::peer_failed, "a message was given up, and UCX with it");
}

UcxMessages::~UcxMessages() {
  end(!error_.ok());
}

// The others hear of it by their connections, and who comes later to see whether this rank lives, by a worker
// that is there no more: nobody would move one for them.
void UcxMessages::leave(const Departure& why) {
  if (culprit_ < 0 && why.is_for_the_gone()) culprit_ = why.culprit;
  const bool failed = !error_.ok();
  if (!failed) error_ = Status(Code::peer_failed, "this rank has left the others");
  end(failed);
}

// `by_force`: what was sent need not arrive.
void UcxMessages::end(bool by_force) {
  // Those left are nobody's: their owners are gone, or have been told.
  for (std::size_t left = open_.size(); left > 0 && worker_.handle() != nullptr && !open_.empty(); --left) {
    UcxOpen& open = *open_.back();
    if (open.ticket != nullptr) open.ticket->words[0] = 0;
    open.ticket = nullptr;
    release(open);
  }
  if (worker_.handle() == nullptr) return;
  for (UcxPeer& peer : peers_)
    close(peer, by_force || peer.failure != UCS_OK || !peer.sent);
  const auto closed = [this] {
    std::erase_if(closing_, [](void* request) {
      if (ucp_request_check_status(request) == UCS_INPROGRESS) return false;
      ucp_request_free(request);
      return true;
    });
    return closing_.empty();
  };
  (void)progress_until(closed, kCloseFor);
  // The worker first, which would tell `this` about its peers. Theirs then see that this rank has left.
  drop_worker();
}

void UcxMessages::drop_worker() {
  // UCX insists that nobody waits for a connection that goes this way.
  for (UcxPeer& peer : peers_) {
    if (peer.flush != nullptr) closing_.push_back(std::exchange(peer.flush, nullptr));
  }
  for (void* request : closing_)
    ucp_request_free(request);
  closing_.clear();
  worker_.destroy();
}

Result<std::unique_ptr<UcxTransport>> make_ucx_transport(UcxWorker& worker, int rank,
                                                         std::vector<UcxAddress> addresses) {
  auto made = std::make_unique<UcxMessages>(worker, rank, std::move(addresses));
  // One endpoint shows whether UCX finds a way to other ranks at all.
  if (UcxPeer* peer = made->first_peer(); peer != nullptr) {
    const Status reached = made->connect(*peer);
    if (!reached.ok())
      return Status(reached.code() == Code::peer_failed ? Code::unsupported : reached.code(),
                    reached.message());
    HEDDLE_TRY(made->check_descriptors());
  }
  return std::unique_ptr<UcxTransport>(std::move(made));
}

}  // namespace heddle
