// Two ranks of one process that are joined by TCP.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "support/ranks.hpp"
#include "tcp_ipv4.hpp"
#include "transports/tcp/addresses.hpp"
#include "transports/tcp/socket.hpp"
#include "transports/tcp/tcp_transport.hpp"

namespace heddle::tcp {

// On this address alone.
inline Socket listen_at(const Address& address, std::uint16_t port) {
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  (void)::setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_storage where{};
  const socklen_t length = to_sockaddr(address, port, where);
  if (::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&where), length) != 0 ||
      ::listen(socket.fd(), 4) != 0)
    socket.close();
  return socket;
}

// Two ranks of this process, each with a list of the other's addresses.
class Pair {
 public:
  explicit Pair(const std::vector<Address>& addresses = {kLoopback},
                std::chrono::milliseconds timeout = std::chrono::milliseconds(0))
      : Pair(addresses, addresses, timeout) {}
  Pair(const std::vector<Address>& of_zero, const std::vector<Address>& of_one,
       std::chrono::milliseconds timeout = std::chrono::milliseconds(0))
      : Pair(tcp_listen(0).value(), tcp_listen(0).value(), of_zero, of_one, timeout) {}
  Pair(Socket zero, Socket one, const std::vector<Address>& of_zero, const std::vector<Address>& of_one,
       std::chrono::milliseconds timeout = std::chrono::milliseconds(0)) {
    std::vector<TcpTransport::Setup> setups;
    std::vector<Place> places;
    for (std::uint64_t rank = 0; rank < 2; ++rank) {
      Socket& listener = rank == 0 ? zero : one;
      const auto number = static_cast<std::uint16_t>(tcp_local_port(listener));
      places.push_back({"here", 1000 + rank, number, rank == 0 ? of_zero : of_one});
      setups.push_back({std::move(listener), 1000 + rank, {kLoopback}, timeout});
    }
    port = places[0].port;
    for (int rank = 0; rank < 2; ++rank)
      ranks[rank] =
          TcpTransport::make(std::move(setups[static_cast<std::size_t>(rank)]), rank, places).value();
  }
  TcpTransport& of(int rank) { return *ranks[rank]; }
  // Connects them.
  void greet() {
    char out = 1;
    char in = 0;
    Ticket sent;
    Ticket received;
    ASSERT_TRUE(of(0).send(1, 99, &out, 1, sent).ok());
    ASSERT_TRUE(of(1).recv(0, 99, &in, 1, received).ok());
    ASSERT_TRUE(drive([&] { return sent.done && received.done; }));
  }
  // Until nothing more happens by itself.
  void rest() {
    for (int i = 0; i < 300; ++i) {
      status[0] = of(0).progress();
      status[1] = of(1).progress();
    }
  }
  // Progress of both until `done`; false after the limit.
  template <typename Done>
  bool drive(Done done, int limit_s = 5) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(limit_s);
    while (!done()) {
      if (ranks[0]) status[0] = of(0).progress();
      if (ranks[1]) status[1] = of(1).progress();
      if (std::chrono::steady_clock::now() > end) return false;
    }
    return true;
  }

  std::unique_ptr<TcpTransport> ranks[2];
  Status status[2];
  int port = 0;
};

inline bool readable(TcpTransport& transport, int limit_ms) {
  pollfd wake{transport.wake_descriptor(), POLLIN, 0};
  return poll(&wake, 1, limit_ms) > 0;
}

inline bool sleeps(TcpTransport& transport) {
  for (int i = 0; i < 100; ++i) {
    if (transport.arm()) return !readable(transport, 20);
  }
  return false;
}

}  // namespace heddle::tcp
