// What epoll tells, and connections from others. Those to others: connecting.cpp.
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "base/clock.hpp"
#include "base/descriptors.hpp"
#include "transports/tcp/tcp_transport.hpp"

namespace heddle::tcp {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Names of what epoll watches: ranks, and these.
constexpr std::uint64_t kListener = ~std::uint64_t{0};
constexpr std::uint64_t kStranger = std::uint64_t{1} << 61;  // its descriptor is added
constexpr std::uint64_t kAttempt = std::uint64_t{1}
                                   << 62;  // the rank is added, and its descriptor above that
constexpr int kRankBits = 32;

// Besides one for each rank, all of which may come at once: whoever stays silent longest goes when there are
// more.
constexpr std::size_t kMostStrangers = 64;
constexpr milliseconds kGreetWithin{10'000};
constexpr milliseconds kLookAtClockEvery{50};
constexpr milliseconds kLongUnseen{500};
// A receive this old is worth a connection to its sender, which tells when the sender dies: until then
// receives need none.
constexpr std::int64_t kWatchAfterMs = 200;

}  // namespace

std::uint64_t TcpTransport::attempt_name(int rank, int fd) {
  return kAttempt | static_cast<std::uint64_t>(fd) << kRankBits | static_cast<std::uint64_t>(rank);
}

void TcpTransport::watch(const Socket& socket, std::uint64_t name, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = name;
  if (::epoll_ctl(events_.fd(), EPOLL_CTL_MOD, socket.fd(), &event) == 0) return;
  if (errno == ENOENT && ::epoll_ctl(events_.fd(), EPOLL_CTL_ADD, socket.fd(), &event) == 0) return;
  if (error_.ok()) error_ = system_error("epoll_ctl", errno);
}

void TcpTransport::watch_listener() {
  watch(setup_.listener, kListener, EPOLLIN);
}

void TcpTransport::watch_for_room(Peer& peer, bool wanted) {
  if (std::exchange(peer.wants_room, wanted) == wanted) return;
  watch_connected(peer);
}

// The peer is held back by what its socket and this one take. An end of the connection that comes behind that
// is seen when it is read again, which it is as soon as something is open with the peer.
void TcpTransport::leave_unread(Peer& peer, bool on) {
  if (std::exchange(peer.left_unread, on) != on && peer.state == Peer::State::connected)
    watch_connected(peer);
}

void TcpTransport::watch_connected(const Peer& peer) {
  const std::uint32_t events =
      (peer.left_unread ? 0U : std::uint32_t{EPOLLIN}) | (peer.wants_room ? std::uint32_t{EPOLLOUT} : 0U);
  watch(peer.socket, static_cast<std::uint64_t>(peer.rank), events);
}

// A child that was forked may hold the socket open, and epoll would go on telling of it.
void TcpTransport::drop(Socket& socket) {
  if (!socket.open()) return;
  (void)::epoll_ctl(events_.fd(), EPOLL_CTL_DEL, socket.fd(), nullptr);
  socket.close();
}

bool TcpTransport::serve_events() {
  constexpr int kMost = 32;
  epoll_event events[kMost];
  const int count = ::epoll_wait(events_.fd(), events, kMost, 0);
  for (int i = 0; i < count; ++i) {
    const std::uint64_t name = events[i].data.u64;
    if (name == kListener)
      accept_all();
    else if ((name & kAttempt) != 0)
      serve_attempt(at(static_cast<int>(name & 0xffffffff)),
                    static_cast<int>((name - kAttempt) >> kRankBits));
    else if ((name & kStranger) != 0)
      serve_stranger(static_cast<int>(name - kStranger));
    else
      serve_peer(at(static_cast<int>(name)), events[i].events);
  }
  return count > 0;
}

void TcpTransport::serve_peer(Peer& peer, std::uint32_t events) {
  switch (peer.state) {
    case Peer::State::connected:
      if ((events & ~std::uint32_t{EPOLLIN | EPOLLOUT}) == 0 && peer.is_full() && !peer.sends() &&
          !peer.receives())
        leave_unread(peer, true);
      else if ((events & ~std::uint32_t{EPOLLOUT}) != 0)
        pull(peer);
      // What comes may be the word that a message waited for.
      if ((events & EPOLLOUT) != 0 || (peer.sends() && !peer.wants_room)) push(peer);
      return;
    case Peer::State::idle:
    case Peer::State::connecting:
    case Peer::State::awaited:
    case Peer::State::gone:
      return;
  }
}

// ---- From others

void TcpTransport::be_connected(Peer& peer) {
  peer.state = Peer::State::connected;
  peer.buffer.resize(kBuffer);
  peer.wants_room = false;
  peer.left_unread = false;
  watch_connected(peer);
  push(peer);
}

// Anybody may connect and say nothing: that takes no more descriptors than there are.
bool TcpTransport::drop_oldest_stranger() {
  if (strangers_.empty()) return false;
  drop(strangers_.front().socket);
  strangers_.erase(strangers_.begin());
  return true;
}

// Of a connection over which this rank has sent nothing: what the peer is slow to take would count as
// distance. Where it cannot be had the connection goes on as it is.
void TcpTransport::look_how_far(const Socket& socket) const {
  if (!setup_.congestion_if_far.empty() && !tcp_is_near(socket))
    static_cast<void>(tcp_choose_congestion(socket, setup_.congestion_if_far));
}

void TcpTransport::accept_all() {
  while (true) {
    Socket socket(::accept4(setup_.listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    const int fd = socket.fd();
    if (fd < 0) {
      const int error = errno;
      if (is_visitors_error(error)) continue;
      if (error == EMFILE || error == ENFILE) {
        if (!tcp_has_visitor(setup_.listener)) return;
        if (drop_oldest_stranger()) continue;
      }
      if (!is_nobody_now(error) && error_.ok()) error_ = no_descriptor("accept", error);
      return;
    }
    tcp_tune(socket);
    look_how_far(socket);
    if (strangers_.size() >= peers_.size() + kMostStrangers) (void)drop_oldest_stranger();
    watch(socket, kStranger + static_cast<std::uint64_t>(fd), EPOLLIN);
    strangers_.push_back({std::move(socket), {}, 0, steady_clock::now() + kGreetWithin});
    serve_stranger(fd);
  }
}

void TcpTransport::serve_stranger(int fd) {
  const auto found = std::find_if(strangers_.begin(), strangers_.end(),
                                  [fd](const Stranger& s) { return s.socket.fd() == fd; });
  if (found == strangers_.end()) return;
  const ssize_t got = ::recv(fd, reinterpret_cast<std::byte*>(&found->greeting) + found->read,
                             sizeof found->greeting - found->read, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got > 0) found->read += static_cast<std::size_t>(got);
  if (got > 0 && found->read < sizeof found->greeting) return;
  Stranger stranger = std::move(*found);
  strangers_.erase(found);
  if (got <= 0)
    drop(stranger.socket);
  else
    judge(std::move(stranger));
}

// Of two connections that cross, the lower rank's stays: unless its own has not got as far as a greeting,
// which then never comes, or the higher rank insists. Why both keep the same one: connecting.cpp.
void TcpTransport::judge(Stranger stranger) {
  const Greeting& greeting = stranger.greeting;
  const bool insists = greeting.magic == kInsists;
  const bool known = (greeting.magic == kMagic || insists) && greeting.key == setup_.key &&
                     greeting.rank < peers_.size() && static_cast<int>(greeting.rank) != rank_;
  if (!known) return drop(stranger.socket);
  Peer& peer = peers_[greeting.rank];
  if (peer.state == Peer::State::connected || peer.state == Peer::State::gone) return drop(stranger.socket);
  if (rank_ < peer.rank ? peer.greets() && !insists : peer.insists()) {
    const Answer answer = Answer::mine_is_on_its_way;
    (void)::send(stranger.socket.fd(), &answer, sizeof answer, MSG_NOSIGNAL);
    return drop(stranger.socket);
  }
  welcome(peer, std::move(stranger.socket));
}

void TcpTransport::welcome(Peer& peer, Socket socket) {
  drop_attempts(peer);
  const Answer answer = Answer::welcome;
  // Where that fails the next read says why.
  (void)::send(socket.fd(), &answer, sizeof answer, MSG_NOSIGNAL);
  peer.socket = std::move(socket);
  be_connected(peer);
}

// ---- Time

void TcpTransport::look_at_clock() {
  next_look_ms_ = coarse_ms() + kLookAtClockEvery.count();
  const TimePoint now = steady_clock::now();
  const std::int64_t oldest = coarse_ms() - kWatchAfterMs;
  // While nobody looked no peer had a chance to be found.
  const auto unseen = now - std::exchange(looked_, now);
  for (Peer* peer : active_) {
    if (peer->hopeless && unseen > kLongUnseen) *peer->hopeless += unseen;
    if (peer->state == Peer::State::connecting && unseen > kLongUnseen)
      peer->give_up += std::min<steady_clock::duration>(unseen, now - (peer->give_up - connect_within()));
    if (peer->state != Peer::State::idle)
      look_at_connecting(*peer, now);
    else if (!peer->open.empty() && peer->open.front().since_ms < oldest)
      connect(*peer);
  }
  for (Stranger& stranger : strangers_) {
    if (now > stranger.give_up) drop(stranger.socket);
  }
  std::erase_if(strangers_, [](const Stranger& s) { return !s.socket.open(); });
}

}  // namespace heddle::tcp
