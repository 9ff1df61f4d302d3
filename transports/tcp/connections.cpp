// Making connections: to peers, when there is something for them, and from those who want something.
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
constexpr std::uint64_t kStranger = std::uint64_t{1} << 32;  // its descriptor is added

// An address that does not answer when there is another one to try.
constexpr milliseconds kTryFor{3000};
// A peer whose own connection is on its way.
constexpr milliseconds kAwaitFor{300};
constexpr milliseconds kGreetWithin{10'000};
constexpr milliseconds kLookAtClockEvery{50};
// A receive this old is worth a connection to its sender, which tells when the sender dies: until then receives need none.
constexpr std::int64_t kWatchAfterMs = 200;

int error_of(const Socket& socket) {
  int error = 0;
  socklen_t length = sizeof error;
  return ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

}  // namespace

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
  watch(peer.socket, static_cast<std::uint64_t>(peer.rank), wanted ? EPOLLIN | EPOLLOUT : EPOLLIN);
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
    else if (name >= kStranger)
      serve_stranger(static_cast<int>(name - kStranger));
    else
      serve_peer(at(static_cast<int>(name)), events[i].events);
  }
  return count > 0;
}

void TcpTransport::serve_peer(Peer& peer, std::uint32_t events) {
  switch (peer.state) {
    case Peer::State::connecting:
      return greet(peer);
    case Peer::State::greeting:
      return read_answer(peer);
    case Peer::State::connected:
      if ((events & ~std::uint32_t{EPOLLOUT}) != 0) pull(peer);
      if ((events & EPOLLOUT) != 0) push(peer);
      return;
    case Peer::State::idle:
    case Peer::State::awaited:
    case Peer::State::gone:
      return;
  }
}

// ---- To a peer

void TcpTransport::connect(Peer& peer) {
  peer.candidate = 0;
  try_on(peer, "it has no address");
}

Socket TcpTransport::open_socket(int family) {
  Socket socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.open() && error_.ok()) error_ = no_descriptor("socket", errno);
  return socket;
}

Status TcpTransport::no_descriptor(const std::string& call, int error) {
  if (error != EMFILE && error != ENFILE) return system_error(call, error);
  const Descriptors now = count_descriptors();
  return Status(Code::out_of_memory,
                fmt::format("no socket for a connection: {} of {} file descriptors are open (ulimit -n)",
                            now.open, now.limit));
}

// By the address at `candidate` or one after it. `why` the one before did not do.
void TcpTransport::try_on(Peer& peer, std::string why) {
  drop(peer.socket);
  const std::vector<Address>& addresses = peer.place.addresses;
  for (; peer.candidate < addresses.size(); ++peer.candidate) {
    const Address& address = addresses[peer.candidate];
    sockaddr_storage where{};
    const socklen_t length = to_sockaddr(address, peer.place.port, where);
    Socket socket = open_socket(where.ss_family);
    if (!socket.open()) return;
    tcp_tune(socket, setup_.timeout);
    if (::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&where), length) != 0 &&
        errno != EINPROGRESS && errno != EINTR) {
      why = fmt::format("{}: {}", to_string(address, peer.place.port),
                        system_error("connect", errno).message());
      continue;
    }
    peer.socket = std::move(socket);
    peer.state = Peer::State::connecting;
    const bool last = peer.candidate + 1 == addresses.size();
    peer.give_up = !last                        ? steady_clock::now() + kTryFor
                   : setup_.timeout.count() > 0 ? steady_clock::now() + setup_.timeout
                                                : TimePoint::max();
    return watch(peer.socket, static_cast<std::uint64_t>(peer.rank), EPOLLOUT);
  }
  fail(peer, "no connection: " + why);
}

void TcpTransport::greet(Peer& peer) {
  const Greeting greeting{kMagic, static_cast<std::uint32_t>(rank_), peer.place.key};
  int error = error_of(peer.socket);
  if (error == 0 && ::send(peer.socket.fd(), &greeting, sizeof greeting, MSG_NOSIGNAL) != sizeof greeting)
    error = errno;
  if (error != 0) {
    const std::string where = to_string(peer.place.addresses[peer.candidate], peer.place.port);
    ++peer.candidate;
    return try_on(peer, fmt::format("{}: {}", where, system_error("connect", error).message()));
  }
  // The peer answers when it next looks, which may be long after.
  peer.state = Peer::State::greeting;
  peer.give_up = TimePoint::max();
  watch(peer.socket, static_cast<std::uint64_t>(peer.rank), EPOLLIN);
}

void TcpTransport::read_answer(Peer& peer) {
  Answer answer{};
  const ssize_t got = ::recv(peer.socket.fd(), &answer, sizeof answer, MSG_PEEK | MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got > 0 && got < static_cast<ssize_t>(sizeof answer)) return;
  if (got > 0) (void)::recv(peer.socket.fd(), &answer, sizeof answer, MSG_DONTWAIT);
  if (got > 0 && answer == Answer::welcome) return be_connected(peer);
  if (got > 0 && answer == Answer::mine_is_on_its_way) {
    drop(peer.socket);
    peer.state = Peer::State::awaited;
    peer.give_up = steady_clock::now() + kAwaitFor;
    return;
  }
  const std::string why = got < 0    ? system_error("recv", errno).message()
                          : got == 0 ? "the connection was closed"
                                     : "what answers there is not this rank";
  const std::string where = to_string(peer.place.addresses[peer.candidate], peer.place.port);
  ++peer.candidate;
  try_on(peer, where + ": " + why);
}

void TcpTransport::be_connected(Peer& peer) {
  peer.state = Peer::State::connected;
  peer.buffer.resize(kBuffer);
  peer.wants_room = false;
  watch(peer.socket, static_cast<std::uint64_t>(peer.rank), EPOLLIN);
  push(peer);
}

// ---- From others

void TcpTransport::accept_all() {
  while (true) {
    Socket socket(::accept4(setup_.listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    const int fd = socket.fd();
    if (fd < 0) {
      if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO) continue;
      if (errno != EAGAIN && error_.ok()) error_ = no_descriptor("accept", errno);
      return;
    }
    tcp_tune(socket, setup_.timeout);
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

// Of two connections that cross, the lower rank's stays: unless its own has not got as far as a greeting, which then never comes.
void TcpTransport::judge(Stranger stranger) {
  const Greeting& greeting = stranger.greeting;
  const bool known = greeting.magic == kMagic && greeting.key == setup_.key &&
                     greeting.rank < peers_.size() && static_cast<int>(greeting.rank) != rank_;
  if (!known) return drop(stranger.socket);
  Peer& peer = peers_[greeting.rank];
  if (peer.state == Peer::State::connected || peer.state == Peer::State::gone) return drop(stranger.socket);
  if (peer.state == Peer::State::greeting && rank_ < peer.rank) {
    const Answer answer = Answer::mine_is_on_its_way;
    (void)::send(stranger.socket.fd(), &answer, sizeof answer, MSG_NOSIGNAL);
    return drop(stranger.socket);
  }
  welcome(peer, std::move(stranger.socket));
}

void TcpTransport::welcome(Peer& peer, Socket socket) {
  drop(peer.socket);
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
  for (Peer* peer : active_) {
    if (peer->state == Peer::State::idle) {
      if (!peer->open.empty() && peer->open.front().since_ms < oldest) connect(*peer);
    } else if (peer->state == Peer::State::awaited) {
      if (now > peer->give_up) connect(*peer);
    } else if (peer->state == Peer::State::connecting && now > peer->give_up) {
      const std::string where = to_string(peer->place.addresses[peer->candidate], peer->place.port);
      ++peer->candidate;
      try_on(*peer, where + ": no answer");
    }
  }
  for (Stranger& stranger : strangers_) {
    if (now > stranger.give_up) drop(stranger.socket);
  }
  std::erase_if(strangers_, [](const Stranger& s) { return !s.socket.open(); });
}

}  // namespace heddle::tcp
