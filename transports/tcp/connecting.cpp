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
// What has taken a connection and not answered by then gets company, too, one more each time: the peer
// computes, or it is not the peer, and never answers.
constexpr milliseconds kSilentAfter{1000};
// A peer whose own connection is on its way.
constexpr milliseconds kAwaitFor{300};
// The higher rank of a pair insists on its own connection when the lower one has refused it so often, and
// nothing of the lower rank's came: that may have been taken by something that never answers. Both keep the
// same connection:
// - Whoever has greeted drops that attempt only when it is answered, when another one is welcomed, or when it
//   welcomes the peer's. No one is welcomed by a rank that has a connection, so that of several attempts of
//   one rank at most one is.
// - While the lower rank has a greeting out it welcomes none, but one that insists. So where the higher rank,
//   not insisting, welcomes the lower one's and drops its own, none of those has been or will be welcomed:
//   the lower rank gets its welcome before it could.
// - While the higher rank has an insisting greeting out it welcomes none; what comes is refused. So where the
//   lower rank welcomes it and drops its own, none of those has been welcomed (the higher rank would be
//   connected, and not insist) or will be.
// - They do not refuse each other for ever: the lower rank takes an insisting greeting whenever it comes, and
//   the higher one sends it only where the lower one has answered. Where that leads to nobody any more the
//   system ends the connection, and with it the insisting.
constexpr unsigned kInsistsAfter = 2;
// Without a deadline of the user's. A host that is up takes connections whatever its ranks do, unless more of
// them come at once than its listener has room for: that passes in some seconds.
constexpr milliseconds kConnectWithin{30'000};
// A peer that no address leads to may have a way to this rank, or a moment of trouble. Shorter than ways
// between nodes are tried.
constexpr milliseconds kHopelessAfter{3000};

int error_of(const Socket& socket) {
  int error = 0;
  socklen_t length = sizeof error;
  return ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

}  // namespace

milliseconds TcpTransport::connect_within() const {
  return setup_.timeout.count() > 0 ? setup_.timeout : kConnectWithin;
}

// All addresses at which there is no attempt are tried, that which led there before first, and the one where
// this rank insists before that.
void TcpTransport::connect(Peer& peer) {
  const std::vector<Address>& addresses = peer.place.addresses;
  peer.give_up = steady_clock::now() + connect_within();
  peer.tried = addresses.empty() ? "it has no address" : "";
  peer.untried.resize(addresses.size());
  std::iota(peer.untried.begin(), peer.untried.end(), std::size_t{0});
  for (const Attempt& attempt : peer.attempts)
    std::erase(peer.untried, attempt.address);
  if (const std::optional<Address> known = setup_.ways->to(peer.place)) {
    std::stable_partition(peer.untried.begin(), peer.untried.end(),
                          [&](std::size_t i) { return addresses[i] == *known; });
  }
  if (peer.refused > 0) {
    std::stable_partition(peer.untried.begin(), peer.untried.end(),
                          [&](std::size_t i) { return i == peer.refused_at; });
  }
  try_next(peer);
}

// Begins with the next address, beside those that have not answered.
void TcpTransport::try_next(Peer& peer) {
  while (!peer.untried.empty()) {
    const std::size_t which = peer.untried.front();
    sockaddr_storage where{};
    const socklen_t length = to_sockaddr(peer.place.addresses[which], peer.place.port, where);
    peer.next_step = steady_clock::now() + (peer.greets() ? kSilentAfter : kBesideAfter);
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
    if (!setup_.congestion.empty())
      static_cast<void>(tcp_choose_congestion(socket, setup_.congestion));  // tried with the listener
    if (::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&where), length) != 0 &&
        errno != EINPROGRESS && errno != EINTR) {
      note_failure(peer, which, system_error("connect", errno).message());
      continue;
    }
    peer.state = Peer::State::connecting;
    watch(socket, attempt_name(peer.rank, socket.fd()), EPOLLOUT);
    const bool insists = rank_ > peer.rank && peer.refused >= kInsistsAfter && which == peer.refused_at;
    peer.attempts.push_back({std::move(socket), which, insists, false});
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

// One of its attempts has connected, failed, or been answered.
void TcpTransport::serve_attempt(Peer& peer, int fd) {
  const auto found = std::find_if(peer.attempts.begin(), peer.attempts.end(),
                                  [fd](const Attempt& a) { return a.socket.fd() == fd; });
  if (found == peer.attempts.end()) return;
  if (found->greeted)
    read_answer(peer, *found);
  else
    greet(peer, *found);
}

// Those that have not connected are given up: each would cost the peer a descriptor, and it answers by one
// when it next looks, which may be long after. They have their turn where nothing answers for a while.
void TcpTransport::greet(Peer& peer, Attempt& attempt) {
  const int fd = attempt.socket.fd();
  int error = error_of(attempt.socket);
  const Greeting greeting{attempt.insists ? kInsists : kMagic, static_cast<std::uint32_t>(rank_),
                          peer.place.key};
  if (error == 0) look_how_far(attempt.socket);
  if (error == 0 && ::send(fd, &greeting, sizeof greeting, MSG_NOSIGNAL) != sizeof greeting) error = errno;
  // The number was another attempt's, of which epoll tells.
  if (error == EAGAIN || error == ENOTCONN) return;
  if (error != 0) {
    note_failure(peer, attempt.address, system_error("connect", error).message());
    end_attempt(peer, attempt);
    return try_next(peer);
  }
  attempt.greeted = true;
  peer.next_step = steady_clock::now() + kSilentAfter;
  watch(attempt.socket, attempt_name(peer.rank, fd), EPOLLIN);
  for (std::size_t i = peer.attempts.size(); i-- > 0;) {
    if (peer.attempts[i].greeted) continue;
    peer.untried.insert(peer.untried.begin(), peer.attempts[i].address);
    drop(peer.attempts[i].socket);
  }
  std::erase_if(peer.attempts, [](const Attempt& a) { return !a.socket.open(); });
}

// It has failed, or been answered: not one that the peer may still take.
void TcpTransport::end_attempt(Peer& peer, Attempt& attempt) {
  drop(attempt.socket);
  std::erase_if(peer.attempts, [](const Attempt& a) { return !a.socket.open(); });
}

void TcpTransport::drop_attempts(Peer& peer) {
  for (Attempt& attempt : peer.attempts)
    drop(attempt.socket);
  peer.attempts.clear();
}

void TcpTransport::read_answer(Peer& peer, Attempt& attempt) {
  const int fd = attempt.socket.fd();
  const std::size_t address = attempt.address;
  Answer answer{};
  const ssize_t got = ::recv(fd, &answer, sizeof answer, MSG_PEEK | MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got > 0 && got < static_cast<ssize_t>(sizeof answer)) return;
  const std::string why = got < 0    ? system_error("recv", errno).message()
                          : got == 0 ? "the connection was closed"
                                     : "what answers there is not this rank";
  if (got > 0) (void)::recv(fd, &answer, sizeof answer, MSG_DONTWAIT);
  if (got > 0 && answer == Answer::welcome) {
    setup_.ways->keep(peer.place, peer.place.addresses[address]);
    peer.socket = std::move(attempt.socket);
    drop_attempts(peer);
    return be_connected(peer);
  }
  end_attempt(peer, attempt);
  if (got > 0 && answer == Answer::mine_is_on_its_way) return be_refused(peer, address);
  note_failure(peer, address, why);
  try_next(peer);
}

// A peer whose own connection is on its way may have sent it to something else, which never answers. See
// kInsistsAfter.
void TcpTransport::be_refused(Peer& peer, std::size_t address) {
  ++peer.refused;
  peer.refused_at = address;
  if (peer.attempts.empty()) return await(peer, true);
  std::erase(peer.untried, address);
  peer.untried.insert(peer.untried.begin(), address);
  peer.next_step = steady_clock::now() + kAwaitFor;
}

// What was due by `now` for a peer that is not connected.
void TcpTransport::look_at_connecting(Peer& peer, TimePoint now) {
  // What has taken a connection may be the peer, which computes.
  if (peer.state == Peer::State::connecting && !peer.greets() && now > peer.give_up)
    return fail(peer, fmt::format("{} within {:.3g} s (HEDDLE_TIMEOUT)", trouble(peer.rank),
                                  std::chrono::duration<double>(connect_within()).count()));
  if (now <= peer.next_step) return;
  switch (peer.state) {
    case Peer::State::awaited:
      if (peer.hopeless && now > *peer.hopeless) return fail(peer, trouble(peer.rank));
      return connect(peer);
    case Peer::State::connecting:
      if (!peer.untried.empty()) return try_next(peer);
      // Something else may have taken it, for ever.
      if (peer.greets() && peer.attempts.size() < peer.place.addresses.size()) connect(peer);
      return;
    case Peer::State::idle:
    case Peer::State::connected:
    case Peer::State::gone:
      return;
  }
}

std::string TcpTransport::trouble(int rank) const {
  const Peer& peer = at(rank);
  if (peer.state != Peer::State::connecting && !(peer.state == Peer::State::awaited && peer.hopeless))
    return "";
  std::string text;
  const auto add = [&text](const std::string& more) { text += (text.empty() ? "" : "; ") + more; };
  for (const Attempt& attempt : peer.attempts) {
    if (attempt.greeted)
      add(fmt::format("what takes connections at {} has not answered",
                      to_string(peer.place.addresses[attempt.address], peer.place.port)));
  }
  if (!peer.tried.empty()) add(peer.tried);
  for (const Attempt& attempt : peer.attempts) {
    if (!attempt.greeted)
      add(to_string(peer.place.addresses[attempt.address], peer.place.port) + ": no answer");
  }
  return "no connection: " + text;
}

}  // namespace heddle::tcp
