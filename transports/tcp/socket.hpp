// TCP sockets: owned, close-on-exec, closed in forked children, non-blocking, every wait with a deadline.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <utility>

#include "base/descriptors.hpp"
#include "base/port_range.hpp"
#include "base/status.hpp"

namespace heddle {

using Deadline = std::chrono::steady_clock::time_point;

// Milliseconds until `deadline`, for poll(2): at least 0, rounded up.
int milliseconds_until(Deadline deadline);

class Socket {
 public:
  Socket() = default;
  // A new one, or -1 and errno.
  explicit Socket(int fd) : fd_(off_standard_streams(fd)) { close_in_children(fd_); }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    if (this != &other) {
      close();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~Socket() { close(); }

  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  void close();

 private:
  int fd_ = -1;
};

// Small messages go at once; a peer whose host is gone is noticed within half a minute, or, while something
// is on its way to it, when the system gives up, after a quarter of an hour. No sooner then: TCP_USER_TIMEOUT
// would also end connections to peers that live and have no room because they compute.
void tcp_tune(const Socket& socket);
// The name of its congestion control; of a listener, that of the connections that it takes.
std::string tcp_congestion(const Socket& socket);
// Every kernel has it, and everybody may choose it.
inline constexpr const char* kReno = "reno";
// Whether that one spaces packets out by what it thinks the path bears: BBR, which does so for the sake of
// long paths that lose packets.
bool tcp_paces(const std::string& congestion);
// Of a connection: whether a packet and its answer have taken a millisecond at most.
bool tcp_is_near(const Socket& socket);
// Another one. `unsupported`: the kernel has none of that name, or this user may not choose it.
Status tcp_choose_congestion(const Socket& socket, const std::string& name);

// Listens on every address of this machine, IPv6 and IPv4 where there are both. Port 0: any free one.
Result<Socket> tcp_listen(int port);
// Likewise, on the first free one from a place in the range on that depends on the process. Code::system:
// there is none, or this process may not have it.
Result<Socket> tcp_listen(PortRange ports);
// The port a socket is bound to, or 0.
int tcp_local_port(const Socket& socket);
// The numeric address of the other end, or "unknown".
std::string tcp_peer_address(const Socket& socket);
// Whether somebody has opened a connection to `listener`: accept(2) says that there is no descriptor left
// also where there is nobody.
bool tcp_has_visitor(const Socket& listener);
// Of accept(): one visitor's, after which the next may be asked for.
bool is_visitors_error(int error);
// Of accept(): nobody has come, or the system has no memory for who has, which passes. To be asked again.
bool is_nobody_now(int error);
// A connection somebody opened to `listener`, not open when there is none at the moment.
Result<Socket> tcp_accept(const Socket& listener);
// Tries each address of `host` once, side by side, and names them where none does. The name look-up is the
// resolver's and has the resolver's own limits.
Result<Socket> tcp_connect(const std::string& host, int port, Deadline deadline);

// One non-blocking step: bytes moved (0: would block). A closed or broken connection is `peer_failed`.
Result<std::size_t> tcp_read_some(const Socket& socket, void* data, std::size_t bytes);
Result<std::size_t> tcp_write_some(const Socket& socket, const void* data, std::size_t bytes);

// All of it or a status; `timeout` when the deadline passes.
Status tcp_read_all(const Socket& socket, void* data, std::size_t bytes, Deadline deadline);
Status tcp_write_all(const Socket& socket, const void* data, std::size_t bytes, Deadline deadline);

}  // namespace heddle
