#include "transports/tcp/socket.hpp"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "base/descriptors.hpp"

namespace heddle {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

void set_flag(int fd, int level, int name) {
  const int on = 1;
  // Best effort: these options only make things faster or tidier.
  static_cast<void>(::setsockopt(fd, level, name, &on, sizeof(on)));
}

void set_value(int fd, int name, int value) {
  static_cast<void>(::setsockopt(fd, IPPROTO_TCP, name, &value, sizeof(value)));
}

void tune(int fd) {
  set_flag(fd, IPPROTO_TCP, TCP_NODELAY);
  set_flag(fd, SOL_SOCKET, SO_KEEPALIVE);
}

// True when `fd` is ready before the deadline.
Result<bool> wait_ready(int fd, short events, Deadline deadline) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, milliseconds_until(deadline));
    if (ready > 0) return true;
    if (ready == 0) return false;
    if (errno != EINTR) return system_error("poll", errno);
  }
}

// `in_use` tells whether the port was the trouble.
Result<Socket> listen_on(int family, int port, bool* in_use) {
  Socket socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.open()) return system_error("socket", errno);
  set_flag(socket.fd(), SOL_SOCKET, SO_REUSEADDR);
  sockaddr_storage storage{};
  socklen_t length = 0;
  if (family == AF_INET6) {
    const int off = 0;
    if (::setsockopt(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) != 0) {
      return system_error("setsockopt(IPV6_V6ONLY)", errno);
    }
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_addr = in6addr_any;
    any.sin6_port = htons(static_cast<std::uint16_t>(port));
    std::memcpy(&storage, &any, length = sizeof(any));
  } else {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_ANY);
    any.sin_port = htons(static_cast<std::uint16_t>(port));
    std::memcpy(&storage, &any, length = sizeof(any));
  }
  if (::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&storage), length) != 0) {
    *in_use = errno == EADDRINUSE;
    return system_error("bind", errno);
  }
  // As many may wait as the system lets them (net.core.somaxconn): the C library's SOMAXCONN is what some
  // kernel had once. Where all ranks of a large job come at once and that is too few, the kernel drops those
  // beyond it, and theirs try again after a second.
  if (::listen(socket.fd(), std::numeric_limits<int>::max()) != 0) {
    // Two may bind to one port before either listens.
    *in_use = errno == EADDRINUSE;
    return system_error("listen", errno);
  }
  return socket;
}

Result<Socket> listen_on_all(int port, bool* in_use) {
  *in_use = false;
  Result<Socket> both = listen_on(AF_INET6, port, in_use);
  // Any other failure may be that of a machine without IPv6. A port in use is final: IPv4 alone might still
  // get it, and then whoever came by IPv6 would meet the other program.
  if (both.ok() || *in_use) return both;
  return listen_on(AF_INET, port, in_use);
}

// Linux gives an unbound client socket a port from the ephemeral range; when that is the very port it
// connects to on its own machine, the socket connects to itself.
bool connected_to_itself(const Socket& socket) {
  sockaddr_storage ours{};
  sockaddr_storage theirs{};
  socklen_t ours_length = sizeof(ours);
  socklen_t theirs_length = sizeof(theirs);
  return ::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&ours), &ours_length) == 0 &&
         ::getpeername(socket.fd(), reinterpret_cast<sockaddr*>(&theirs), &theirs_length) == 0 &&
         ours_length == theirs_length && std::memcmp(&ours, &theirs, ours_length) == 0;
}

std::string numeric(const addrinfo& address) {
  char host[NI_MAXHOST] = {};
  return ::getnameinfo(address.ai_addr, address.ai_addrlen, host, sizeof(host), nullptr, 0, NI_NUMERICHOST) ==
                 0
             ? host
             : "an address";
}

// To the first of several addresses that answers. Each begins a quarter of a second after the one before, or
// when that has failed: one that answers nothing holds the others up no longer.
class SideBySide {
 public:
  explicit SideBySide(const addrinfo* next) : next_(next) {}

  Result<Socket> run(Deadline deadline) {
    for (;;) {
      while (next_ != nullptr && (open_.empty() || std::chrono::steady_clock::now() >= due_))
        begin();
      if (open_.empty()) return Status(code_, failures_);
      std::vector<pollfd> entries;
      for (const Attempt& attempt : open_)
        entries.push_back({attempt.socket.fd(), POLLOUT, 0});
      const Deadline until = next_ != nullptr ? std::min(due_, deadline) : deadline;
      if (::poll(entries.data(), entries.size(), milliseconds_until(until)) < 0 && errno != EINTR)
        return system_error("poll", errno);
      for (std::size_t i = entries.size(); i-- > 0;) {
        if (entries[i].revents == 0) continue;
        Attempt attempt = std::move(open_[i]);
        open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(i));
        if (is_connected(attempt)) return std::move(attempt.socket);
      }
      if (!open_.empty() && milliseconds_until(deadline) == 0) return no_answer();
    }
  }

 private:
  struct Attempt {
    Socket socket;
    std::string address;
  };

  void begin() {
    const addrinfo& address = *std::exchange(next_, next_->ai_next);
    due_ = std::chrono::steady_clock::now() + kBesideAfter;
    Socket socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket.open()) return note(numeric(address), system_error("socket", errno));
    // Where the kernel gives it the very port that it connects to, it is connected to itself: that port is
    // then free again as soon as it is closed, for who should listen there.
    const int on = 1;
    (void)::setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    // After EINTR the connection goes on being made, as after EINPROGRESS.
    if (::connect(socket.fd(), address.ai_addr, address.ai_addrlen) != 0 && errno != EINPROGRESS &&
        errno != EINTR)
      return note(numeric(address), system_error("connect", errno));
    open_.push_back({std::move(socket), numeric(address)});
  }

  bool is_connected(const Attempt& attempt) {
    int error = 0;
    socklen_t length = sizeof(error);
    if (::getsockopt(attempt.socket.fd(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
    if (error == 0 && connected_to_itself(attempt.socket)) error = ECONNREFUSED;
    if (error != 0) note(attempt.address, system_error("connect", error));
    return error == 0;
  }

  void note(const std::string& address, const Status& why) {
    code_ = why.code();
    failures_ += (failures_.empty() ? "" : ", ") + address + ": " + why.message();
  }

  Status no_answer() {
    for (const Attempt& attempt : open_)
      note(attempt.address, Status(Code::timeout, "no answer"));
    return Status(Code::timeout, failures_);
  }

  static constexpr std::chrono::milliseconds kBesideAfter{250};
  const addrinfo* next_;
  Deadline due_{};
  std::vector<Attempt> open_;
  Code code_ = Code::system;
  std::string failures_;
};

}  // namespace

int milliseconds_until(Deadline deadline) {
  using std::chrono::milliseconds;
  const auto left = std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000'000));
}

void Socket::close() {
  // On Linux the descriptor is gone even when close says EINTR: never close twice.
  close_noted(std::exchange(fd_, -1));
}

std::string tcp_congestion(const Socket& socket) {
  char name[16] = {};  // TCP_CA_NAME_MAX of the kernel's
  socklen_t length = sizeof name;
  if (::getsockopt(socket.fd(), IPPROTO_TCP, TCP_CONGESTION, name, &length) != 0) return {};
  return {name, strnlen(name, sizeof name)};
}

bool tcp_paces(const std::string& congestion) {
  return congestion.starts_with("bbr");
}

bool tcp_is_near(const Socket& socket) {
  constexpr std::uint32_t kNearUs = 1000;
  tcp_info info{};
  socklen_t length = sizeof info;
  if (::getsockopt(socket.fd(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return false;
  const bool known = info.tcpi_rtt != 0;
  return known && info.tcpi_rtt <= kNearUs;
}

Status tcp_choose_congestion(const Socket& socket, const std::string& name) {
  const auto length = static_cast<socklen_t>(name.size());
  if (::setsockopt(socket.fd(), IPPROTO_TCP, TCP_CONGESTION, name.data(), length) == 0) return {};
  const char* const why = errno == ENOENT  ? "the kernel has none of that name"
                          : errno == EPERM ? "this user may not choose it"
                                           : std::strerror(errno);
  return Status(
      Code::unsupported,
      fmt::format("HEDDLE_TCP_CONGESTION='{}': {} (see /proc/sys/net/ipv4/tcp_allowed_congestion_control)",
                  name, why));
}

void tcp_tune(const Socket& socket) {
  constexpr int kQuietSeconds = 10;
  constexpr int kBetweenProbes = 5;
  constexpr int kProbes = 4;
  tune(socket.fd());
  set_value(socket.fd(), TCP_KEEPIDLE, kQuietSeconds);
  set_value(socket.fd(), TCP_KEEPINTVL, kBetweenProbes);
  set_value(socket.fd(), TCP_KEEPCNT, kProbes);
}

Result<Socket> tcp_listen(int port) {
  bool in_use = false;
  return listen_on_all(port, &in_use);
}

Result<Socket> tcp_listen(PortRange ports) {
  if (ports.any()) return tcp_listen(0);
  // The ranks of a node, whose numbers of processes follow each other, do not all begin at the same one.
  const int begin = static_cast<int>(::getpid() % ports.count());
  for (int i = 0; i < ports.count(); ++i) {
    const int port = ports.first + (begin + i) % ports.count();
    bool in_use = false;
    Result<Socket> listener = listen_on_all(port, &in_use);
    if (listener.ok()) return listener;
    if (!in_use)
      return Status(listener.status().code(),
                    fmt::format("port {} of HEDDLE_TCP_PORTS={}-{}: {}", port, ports.first, ports.last,
                                listener.status().message()));
  }
  return Status(Code::system, fmt::format("all ports of HEDDLE_TCP_PORTS={}-{} are in use: each rank takes "
                                          "one for each communicator over several nodes",
                                          ports.first, ports.last));
}

int tcp_local_port(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

std::string tcp_peer_address(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  char host[NI_MAXHOST] = {};
  if (::getpeername(socket.fd(), reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
      ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host, sizeof(host), nullptr, 0,
                    NI_NUMERICHOST) != 0) {
    return "unknown";
  }
  const std::string text = host;
  return text.rfind("::ffff:", 0) == 0 ? text.substr(7) : text;
}

bool tcp_has_visitor(const Socket& listener) {
  pollfd entry{listener.fd(), POLLIN, 0};
  return ::poll(&entry, 1, 0) > 0;
}

// accept(2): errors of the network that a new connection came over are told here.
bool is_visitors_error(int error) {
  switch (error) {
    case EINTR:
    case ECONNABORTED:
    case EPROTO:
    case ENETDOWN:
    case ENOPROTOOPT:
    case EHOSTDOWN:
    case ENONET:
    case EHOSTUNREACH:
    case EOPNOTSUPP:
    case ENETUNREACH:
      return true;
    default:
      return false;
  }
}

bool is_nobody_now(int error) {
  return error == EAGAIN || error == ENOBUFS || error == ENOMEM;
}

Result<Socket> tcp_accept(const Socket& listener) {
  for (;;) {
    Socket socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.open()) {
      tune(socket.fd());
      return socket;
    }
    const int error = errno;
    if (is_visitors_error(error)) continue;
    if (is_nobody_now(error)) return Socket();
    if ((error == EMFILE || error == ENFILE) && !tcp_has_visitor(listener)) return Socket();
    return no_descriptor("accept", error);
  }
}

Result<Socket> tcp_connect(const std::string& host, int port, Deadline deadline) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* raw = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &raw);
  if (error == EAI_SYSTEM) return system_error("look-up of \"" + host + "\"", errno);
  if (error != 0) return Status(Code::system, "look-up of \"" + host + "\": " + ::gai_strerror(error));
  const AddressList addresses(raw, &::freeaddrinfo);
  if (raw == nullptr) return Status(Code::system, "look-up of \"" + host + "\": no address");
  Result<Socket> socket = SideBySide(addresses.get()).run(deadline);
  if (socket.ok()) tune(socket->fd());
  return socket;
}

Result<std::size_t> tcp_read_some(const Socket& socket, void* data, std::size_t bytes) {
  if (bytes == 0) return std::size_t{0};
  for (;;) {
    const ssize_t got = ::recv(socket.fd(), data, bytes, 0);
    if (got > 0) return static_cast<std::size_t>(got);
    if (got == 0) return Status(Code::peer_failed, "the connection was closed");
    if (errno == EINTR) continue;
    if (errno == EAGAIN) return std::size_t{0};
    return Status(Code::peer_failed, system_error("recv", errno).message());
  }
}

Result<std::size_t> tcp_write_some(const Socket& socket, const void* data, std::size_t bytes) {
  for (;;) {
    const ssize_t put = ::send(socket.fd(), data, bytes, MSG_NOSIGNAL);
    if (put >= 0) return static_cast<std::size_t>(put);
    if (errno == EINTR) continue;
    if (errno == EAGAIN) return std::size_t{0};
    return Status(Code::peer_failed, system_error("send", errno).message());
  }
}

namespace {

// Repeats `step` (bytes left -> bytes moved) until all is moved.
template <typename Step>
Status move_all(const Socket& socket, std::size_t bytes, short events, Deadline deadline, Step step) {
  for (std::size_t moved = 0; moved < bytes;) {
    Result<std::size_t> now = step(moved);
    if (!now.ok()) return now.status();
    moved += now.value();
    if (now.value() != 0 || moved == bytes) continue;
    Result<bool> ready = wait_ready(socket.fd(), events, deadline);
    if (!ready.ok()) return ready.status();
    if (!ready.value()) return Status(Code::timeout, "no answer");
  }
  return {};
}

}  // namespace

Status tcp_read_all(const Socket& socket, void* data, std::size_t bytes, Deadline deadline) {
  return move_all(socket, bytes, POLLIN, deadline, [&](std::size_t moved) {
    return tcp_read_some(socket, static_cast<char*>(data) + moved, bytes - moved);
  });
}

Status tcp_write_all(const Socket& socket, const void* data, std::size_t bytes, Deadline deadline) {
  return move_all(socket, bytes, POLLOUT, deadline, [&](std::size_t moved) {
    return tcp_write_some(socket, static_cast<const char*>(data) + moved, bytes - moved);
  });
}

}  // namespace heddle
