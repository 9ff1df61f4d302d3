// Ranks that are threads, and start over TCP on the loopback interface.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "setup/bootstrap.hpp"
#include "transports/tcp/socket.hpp"

namespace heddle {

using std::chrono::milliseconds;
constexpr milliseconds kPatient{60'000};
constexpr milliseconds kBrief{300};

inline int free_port() {
  Result<Socket> socket = tcp_listen(0);
  return socket.ok() ? tcp_local_port(socket.value()) : 0;
}

inline Rendezvous place(int rank, int size, int port, const char* address = "127.0.0.1") {
  return Rendezvous{rank, size, address, port, ""};
}

// The status of each body, run side by side.
inline std::vector<Status> side_by_side(const std::vector<std::function<Status()>>& bodies) {
  std::vector<Status> statuses(bodies.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < bodies.size(); ++i) {
    threads.emplace_back([&, i] { statuses[i] = bodies[i](); });
  }
  for (std::thread& thread : threads)
    thread.join();
  return statuses;
}

inline Status start(const Rendezvous& where, milliseconds timeout) {
  return bootstrap_over_tcp(where, {timeout}).status();
}

inline bool has(const Status& status, const std::string& text) {
  return status.message().find(text) != std::string::npos;
}

}  // namespace heddle
