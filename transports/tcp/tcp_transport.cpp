#include "transports/tcp/tcp_transport.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.hpp"

namespace heddle::tcp {
namespace {

// Those that nothing is expected of, and those who want to connect, have their turn then.
constexpr unsigned kServeEvery = 64;
// Of so many that something is expected of each is read, at 0.5 us where there is nothing; of more epoll says
// first which to read.
constexpr unsigned kReadUnasked = 3;

template <typename T>
std::size_t find_ticket(const Fifo<T>& fifo, const Ticket& ticket) {
  std::size_t i = 0;
  while (i < fifo.size() && fifo[i].ticket != &ticket)
    ++i;
  return i;
}

template <typename T>
bool has_tickets(const Fifo<T>& fifo) {
  for (std::size_t i = 0; i < fifo.size(); ++i) {
    if (fifo[i].ticket != nullptr) return true;
  }
  return false;
}

}  // namespace

Result<std::unique_ptr<TcpTransport>> TcpTransport::make(Setup setup, int rank, std::vector<Place> places) {
  Socket events(::epoll_create1(EPOLL_CLOEXEC));
  if (!events.open()) return system_error("epoll_create1", errno);
  std::unique_ptr<TcpTransport> made(
      new TcpTransport(std::move(setup), std::move(events), rank, std::move(places)));
  HEDDLE_TRY(made->error_);
  return made;
}

TcpTransport::TcpTransport(Setup setup, Socket events, int rank, std::vector<Place> places)
    : setup_(std::move(setup)), events_(std::move(events)), rank_(rank), peers_(places.size()) {
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    peers_[i].rank = static_cast<int>(i);
    peers_[i].place = std::move(places[i]);
    peers_[i].place.addresses = by_preference(std::move(peers_[i].place.addresses), setup_.addresses);
  }
  capabilities_.name = "tcp";
  capabilities_.cost = {10000, 0.2};
  watch_listener();
}

// What the system has taken it delivers, unless something is left unread here, of which it would tell the
// peer by a reset.
TcpTransport::~TcpTransport() {
  for (Peer& peer : peers_) {
    if (peer.state != Peer::State::connected) continue;
    peer.buffer.resize(kBuffer);
    for (int i = 0; i < kMostReadsAtEnd; ++i) {
      if (::recv(peer.socket.fd(), peer.buffer.data(), peer.buffer.size(), MSG_DONTWAIT) <= 0) break;
    }
    // Also where a forked child still has the socket.
    (void)::shutdown(peer.socket.fd(), SHUT_WR);
  }
}

// What the system has taken comes before the news. Connections that are not made yet never will be: a peer
// whose own one waits in the listener's queue hears of it by a reset. The others hear for whose sake, so that
// they need not take this rank for the first that failed.
void TcpTransport::leave(const Departure& why) {
  if (!culprit_.is_known()) culprit_ = why;
  for (Peer& peer : peers_) {
    if (peer.state != Peer::State::connected) {
      drop_attempts(peer);
      continue;
    }
    const Frame farewell{Kind::farewell, static_cast<std::uint32_t>(culprit_.culprit), culprit_.waited_ms};
    // Not within a message. Where there is no room for it they hear less.
    if (culprit_.is_known() && peer.sent == 0)
      (void)::send(peer.socket.fd(), &farewell, sizeof farewell, MSG_DONTWAIT | MSG_NOSIGNAL);
    (void)::shutdown(peer.socket.fd(), SHUT_WR);
  }
  for (Stranger& stranger : strangers_)
    drop(stranger.socket);
  strangers_.clear();
  drop(setup_.listener);
}

int TcpTransport::connections() const {
  return static_cast<int>(std::count_if(peers_.begin(), peers_.end(),
                                        [](const Peer& p) { return p.state == Peer::State::connected; }));
}

void TcpTransport::activate(Peer& peer) {
  leave_unread(peer, false);
  if (std::exchange(peer.active, true)) return;
  active_.push_back(&peer);
}

Status TcpTransport::send(int to, std::uint32_t tag, const void* data, std::size_t bytes, Ticket& ticket) {
  if (!error_.ok()) return error_;
  Peer& peer = at(to);
  if (peer.state == Peer::State::gone) return missed(peer);
  const auto number = static_cast<std::uint64_t>(to) + 1;
  ticket.words[0] = number;
  const Sending message{{Kind::data, tag, bytes}, static_cast<const std::byte*>(data), &ticket, false};
  if (!peer.held.empty() || bytes > kEager) {
    peer.held.push(message);
    release(peer, tag);
  } else {
    peer.queue.push(message);
  }
  if (peer.state == Peer::State::idle) connect(peer);
  push(peer);
  if (peer.sends() || peer.receives()) activate(peer);
  return error_;
}

bool TcpTransport::take_ready(Peer& peer, std::uint32_t tag) {
  const auto found = std::find(peer.ready.begin(), peer.ready.end(), tag);
  if (found == peer.ready.end()) return false;
  peer.ready.erase(found);
  return true;
}

// Queues those held messages of this tag that may go, in their order. The first that may not is announced:
// only one of a tag, so that an announcement never overtakes a message.
void TcpTransport::release(Peer& peer, std::uint32_t tag) {
  for (std::size_t i = 0; i < peer.held.size();) {
    Sending& message = peer.held[i];
    if (message.frame.tag != tag) {
      ++i;
      continue;
    }
    if (message.frame.bytes > kEager && !take_ready(peer, tag)) {
      if (!std::exchange(message.announced, true))
        peer.queue.push({{Kind::announce, tag, message.frame.bytes}, nullptr, nullptr, false});
      return;
    }
    peer.queue.push(message);
    peer.held.erase(i);
  }
}

Status TcpTransport::recv(int from, std::uint32_t tag, void* data, std::size_t bytes, Ticket& ticket) {
  if (!error_.ok()) return error_;
  Peer& peer = at(from);
  ticket.words[0] = static_cast<std::uint64_t>(from) + 1;
  const Receiving receive{tag, bytes, static_cast<std::byte*>(data), &ticket, coarse_ms()};
  for (std::size_t i = 0; i < peer.early.size(); ++i) {
    if (peer.early[i].tag != tag) continue;
    take_early(peer, i, receive);
    return error_;
  }
  if (peer.state == Peer::State::gone) return missed(peer);
  open_receive(peer, receive);
  return error_;
}

void TcpTransport::open_receive(Peer& peer, const Receiving& receive) {
  peer.open.push(receive);
  activate(peer);
  if (receive.bytes <= kEager) return;
  peer.queue.push({{Kind::ready, receive.tag, receive.bytes}, nullptr, nullptr, false});
  if (peer.state == Peer::State::idle) connect(peer);
  push(peer);
}

void TcpTransport::take_early(Peer& peer, std::size_t place, const Receiving& receive) {
  Early& early = peer.early[place];
  if (early.bytes != receive.bytes) return wrong_length(peer, early.bytes, receive.bytes);
  if (!early.complete && peer.state == Peer::State::gone) {
    error_ = missed(peer);
    return;
  }
  if (early.announced) {
    open_receive(peer, receive);
  } else if (early.complete) {
    if (early.bytes > 0) std::memcpy(receive.data, early.data.get(), early.bytes);
    receive.ticket->done = true;
  } else {
    const std::size_t come = early.bytes - peer.arriving.left;
    std::memcpy(receive.data, early.data.get(), come);
    peer.arriving = {peer.arriving.left, receive.data + come, receive.ticket, nullptr};
    activate(peer);
  }
  drop_early(peer, place);
}

// Half of what is kept goes before more is read, so that not every message costs two system calls.
void TcpTransport::drop_early(Peer& peer, std::size_t place) {
  peer.kept -= peer.early[place].kept();
  peer.early.erase(place);
  if (peer.kept < kMostEarly / 2) leave_unread(peer, false);
}

void TcpTransport::wrong_length(const Peer& peer, std::size_t length, std::size_t expected) {
  if (error_.ok())
    error_ = different_length(fmt::format("rank {} on {}", peer.rank, peer.place.host), length, expected);
}

// No fault of the peer's.
void TcpTransport::blame_buffer(const Peer& peer, const char* done, std::size_t left) {
  if (error_.ok())
    error_ = Status(
        Code::invalid_argument,
        fmt::format(
            "rank {}, this one: the buffer of a message {} rank {} is not all memory of this process in "
            "its last {} bytes, or not of that kind (Bad address)",
            rank_, done, peer.rank, left));
}

// A peer may leave when it has had its share of the last collective: only those who still expect something of
// it mind.
void TcpTransport::fail(Peer& peer, const std::string& why, bool left) {
  const Departure from = cause(peer);
  const Peer& first = at(from.culprit);
  const bool told = first.rank != peer.rank;
  const auto name = [](const Peer& who) { return fmt::format("rank {} on {}", who.rank, who.place.host); };
  std::string text = name(peer) + ": " + why;
  if (told) text = why_left(name(peer), name(first), from);
  if (peer.left_for.culprit == rank_ && peer.left_for.waited_ms > 0)
    text = why_left(name(peer), "this rank", peer.left_for);
  Status failure(Code::peer_failed, std::move(text));
  lose(peer, told || left ? std::move(failure).at_second_hand() : std::move(failure));
  if (is_expected(peer) && error_.ok()) error_ = missed(peer);
}

// By this rank, which has no other rank to blame for it.
void TcpTransport::give_up(Peer& peer) {
  lose(peer, Status(Code::peer_failed,
                    fmt::format("rank {} on {}: a message to it was given up", peer.rank, peer.place.host)));
  if (is_expected(peer) && error_.ok()) error_ = peer.failure;
}

void TcpTransport::lose(Peer& peer, Status failure) {
  drop(peer.socket);
  drop_attempts(peer);
  peer.state = Peer::State::gone;
  peer.failure = std::move(failure);
}

bool TcpTransport::is_expected(const Peer& peer) {
  return !peer.open.empty() || peer.arriving.ticket != nullptr || has_tickets(peer.queue) ||
         has_tickets(peer.held);
}

// For whose sake it is gone: another rank's, where it has said so.
Departure TcpTransport::cause(const Peer& peer) const {
  const int told = peer.left_for.culprit;
  return is_known(told) && told != peer.rank ? peer.left_for : Departure{peer.rank};
}

// Of one that is gone and that something is to come from or to go to.
Status TcpTransport::missed(const Peer& peer) {
  culprit_ = cause(peer);
  return peer.failure;
}

// Another rank than this one.
bool TcpTransport::is_known(int rank) const {
  return rank >= 0 && rank != rank_ && static_cast<std::size_t>(rank) < peers_.size();
}

Status TcpTransport::progress() {
  if (!error_.ok()) return error_;
  bool unconnected = false;
  const bool ask = expected_ > kReadUnasked;
  expected_ = 0;
  for (std::size_t i = 0; i < active_.size();) {
    Peer& peer = *active_[i];
    if (peer.receives()) {
      ++expected_;
      if (!ask) pull(peer);
    }
    if (peer.sends()) push(peer);
    unconnected = unconnected || peer.state != Peer::State::connected;
    if (peer.sends() || peer.receives()) {
      ++i;
      continue;
    }
    peer.active = false;
    active_[i] = active_.back();
    active_.pop_back();
  }
  if (unconnected || ask || ++rounds_ % kServeEvery == 0) (void)serve_events();
  if (!active_.empty() && coarse_ms() >= next_look_ms_) [[unlikely]]
    look_at_clock();
  return error_;
}

bool TcpTransport::arm() {
  return error_.ok() && !serve_events();
}

void TcpTransport::cancel(Ticket& ticket) {
  if (ticket.done || ticket.words[0] == 0) return;
  Peer& peer = at(static_cast<int>(std::exchange(ticket.words[0], 0) - 1));
  // What is still to come of it goes nowhere.
  if (peer.arriving.ticket == &ticket) {
    peer.arriving.ticket = nullptr;
    peer.arriving.to = nullptr;
    return;
  }
  if (const std::size_t i = find_ticket(peer.open, ticket); i < peer.open.size()) {
    if (peer.open[i].bytes > kEager) peer.called.push_back(peer.open[i].tag);
    return peer.open.erase(i);
  }
  if (const std::size_t i = find_ticket(peer.held, ticket); i < peer.held.size()) return peer.held.erase(i);
  const std::size_t i = find_ticket(peer.queue, ticket);
  if (i == peer.queue.size()) return;
  const bool begun = i == 0 && peer.sent > 0;
  if (begun) finish_first(peer);
  if (ticket.done) return;
  peer.queue.erase(i);
  if (begun && peer.state == Peer::State::connected) give_up(peer);
}

// The rest of a message cannot be taken back. While its buffer is there it can be sent, if the peer takes it:
// a connection that breaks off within a message tells nobody for whose sake this rank leaves.
void TcpTransport::finish_first(Peer& peer) {
  constexpr std::chrono::milliseconds kFinishWithin{200};  // of all messages that are given up together
  constexpr std::chrono::seconds kLater{1};
  const TimePoint start = std::chrono::steady_clock::now();
  if (start > finish_by_ + kLater) finish_by_ = start + kFinishWithin;
  while (peer.state == Peer::State::connected && peer.sent > 0) {
    push(peer, 1);
    // But for room it waits for nothing: a buffer that is not there does not come back.
    if (peer.state != Peer::State::connected || peer.sent == 0 || !peer.wants_room) return;
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(finish_by_ - std::chrono::steady_clock::now());
    if (left.count() <= 0) return;
    pollfd room{peer.socket.fd(), POLLOUT, 0};
    (void)::poll(&room, 1, static_cast<int>(left.count()));
  }
}

}  // namespace heddle::tcp
