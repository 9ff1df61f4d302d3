// Making connections to peers, when there is something for them.
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <numeric>
#include <utility>

#include "base/descriptors.hpp"
#include "transports/tcp/tcp_transport.hpp"

namespace heddle::tcp {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// An address that has not answered by then gets company: it may be dead, or slow.
constexpr milliseconds kBesideAfter{250};
// A peer whose own connection is on its way.
constexpr milliseconds kAwaitFor{300};
// A peer that no address leads to may have a way to this rank, or a moment of trouble. Shorter than ways between nodes are tried.
constexpr milliseconds kHopelessAfter{3000};

int error_of(const Socket& socket) {
  int error = 0;
  socklen_t length = sizeof error;
  return ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

}  // namespace

// All addresses are tried, that which led there before first.
void TcpTransport::connect(Peer& peer) {
  const std::vector<Address>& addresses = peer.place.addresses;
  peer.tried = addresses.empty() ? "it has no address" : "";
  peer.untried.resize(addresses.size());
  std::iota(peer.untried.begin(), peer.untried.end(), std::size_t{0});
  if (const std::optional<Address> known = setup_.ways->to(peer.place)) {
    std::stable_partition(peer.untried.begin(), peer.untried.end(),
                          [&](std::size_t i) { return addresses[i] == *known; });
  }
  peer.give_up =
      setup_.timeout.count() > 0 ? steady_clock::now() + setup_.timeout : steady_clock::time_point::max();
  try_next(peer);
}

// Begins with the next address, beside those that have not answered.
void TcpTransport::try_next(Peer& peer) {
  while (!peer.untried.empty()) {
    const std::size_t which = peer.untried.front();
    sockaddr_storage where{};
    const socklen_t length = to_sockaddr(peer.place.addresses[which], peer.place.port, where);
    peer.next_step = steady_clock::now() + kBesideAfter;
    Socket socket = open_socket(where.ss_family);
    if (!socket.open() && (errno == EMFILE || errno == ENFILE)) {
      // There is another attempt, which may do; else nothing will.
      if (peer.attempts.empty() && error_.ok()) error_ = no_descriptor("socket", errno);
      return;
    }
    peer.untried.erase(peer.untried.begin());
    if (!socket.open()) {
      note_failure(peer, which, system_error("socket", errno).message());
      continue;
    }
    tcp_tune(socket);
    if (::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&where), length) != 0 &&
        errno != EINPROGRESS && errno != EINTR) {
      note_failure(peer, which, system_error("connect", errno).message());
      continue;
    }
    peer.state = Peer::State::connecting;
    watch(socket, attempt_name(peer.rank, socket.fd()), EPOLLOUT);
    peer.attempts.push_back({std::move(socket), which});
    return;
  }
  if (peer.attempts.empty()) await(peer, false);
}

// Strangers are the first to go where descriptors are scarce.
Socket TcpTransport::open_socket(int family) {
  while (true) {
    Socket socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (socket.open() || (errno != EMFILE && errno != ENFILE)) return socket;
    const int error = errno;
    if (drop_oldest_stranger()) continue;
    errno = error;
    return socket;
  }
}

void TcpTransport::note_failure(Peer& peer, std::size_t which, const std::string& why) {
  peer.tried += fmt::format("{}{}: {}", peer.tried.empty() ? "" : "; ",
                            to_string(peer.place.addresses[which], peer.place.port), why);
}

// The peer's own connection may come, `promised` or not. A while later this rank tries again.
void TcpTransport::await(Peer& peer, bool promised) {
  const auto now = steady_clock::now();
  peer.state = Peer::State::awaited;
  peer.next_step = now + kAwaitFor;
  if (promised) {
    peer.hopeless.reset();
  } else if (!peer.hopeless) {
    peer.hopeless = now + kHopelessAfter;
    looked_ = now;
  }
}

// One of its attempts has connected, or failed. The others are given up where it has: each would cost the peer a descriptor, and it
// answers by one when it next looks, which may be long after.
void TcpTransport::serve_attempt(Peer& peer, int fd) {
  const auto found = std::find_if(peer.attempts.begin(), peer.attempts.end(),
                                  [fd](const Attempt& a) { return a.socket.fd() == fd; });
  if (found == peer.attempts.end()) return;
  int error = error_of(found->socket);
  const Greeting greeting{kMagic, static_cast<std::uint32_t>(rank_), peer.place.key};
  if (error == 0 && ::send(fd, &greeting, sizeof greeting, MSG_NOSIGNAL) != sizeof greeting) error = errno;
  // The number was another attempt's, of which epoll tells.
  if (error == EAGAIN || error == ENOTCONN) return;
  Attempt attempt = std::move(*found);
  peer.attempts.erase(found);
  if (error != 0) {
    drop(attempt.socket);
    note_failure(peer, attempt.address, system_error("connect", error).message());
    return try_next(peer);
  }
  for (std::size_t i = peer.attempts.size(); i-- > 0;)
    peer.untried.insert(peer.untried.begin(), peer.attempts[i].address);
  drop_attempts(peer);
  peer.greeted = attempt.address;
  peer.socket = std::move(attempt.socket);
  peer.state = Peer::State::greeting;
  watch(peer.socket, static_cast<std::uint64_t>(peer.rank), EPOLLIN);
}

void TcpTransport::drop_attempts(Peer& peer) {
  for (Attempt& attempt : peer.attempts)
    drop(attempt.socket);
  peer.attempts.clear();
}

void TcpTransport::read_answer(Peer& peer) {
  Answer answer{};
  const ssize_t got = ::recv(peer.socket.fd(), &answer, sizeof answer, MSG_PEEK | MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got > 0 && got < static_cast<ssize_t>(sizeof answer)) return;
  if (got > 0) (void)::recv(peer.socket.fd(), &answer, sizeof answer, MSG_DONTWAIT);
  if (got > 0 && answer == Answer::welcome) {
    setup_.ways->keep(peer.place, peer.place.addresses[peer.greeted]);
    return be_connected(peer);
  }
  const std::string why = got < 0    ? system_error("recv", errno).message()
                          : got == 0 ? "the connection was closed"
                                     : "what answers there is not this rank";
  drop(peer.socket);
  if (got > 0 && answer == Answer::mine_is_on_its_way) return await(peer, true);
  note_failure(peer, peer.greeted, why);
  try_next(peer);
}

// What was due by `now` for a peer that is not connected.
void TcpTransport::look_at_connecting(Peer& peer, TimePoint now) {
  if (peer.state == Peer::State::awaited && now > peer.next_step) {
    if (peer.hopeless && now > *peer.hopeless) return fail(peer, trouble(peer.rank));
    return connect(peer);
  }
  if (peer.state != Peer::State::connecting) return;
  if (now > peer.give_up) return fail(peer, trouble(peer.rank));
  if (now > peer.next_step && !peer.untried.empty()) try_next(peer);
}

std::string TcpTransport::trouble(int rank) const {
  const Peer& peer = at(rank);
  if (peer.state == Peer::State::greeting)
    return fmt::format("no connection: what takes connections at {} has not answered",
                       to_string(peer.place.addresses[peer.greeted], peer.place.port));
  if (peer.state != Peer::State::connecting && !(peer.state == Peer::State::awaited && peer.hopeless))
    return "";
  std::string text = "no connection: " + peer.tried;
  bool first = peer.tried.empty();
  for (const Attempt& attempt : peer.attempts) {
    text += (first ? "" : "; ") + to_string(peer.place.addresses[attempt.address], peer.place.port) +
            ": no answer";
    first = false;
  }
  return text;
}

}  // namespace heddle::tcp
