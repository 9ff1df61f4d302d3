// Ranks over two devices that are joined by a cable: those with even numbers on rxe0, the others on rxe1.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "support/worlds.hpp"
#include "transports/verbs/network.hpp"

namespace heddle::test {

struct VerbsWorld : World {
  // `silence`: HEDDLE_VERBS_TIMEOUT; `timeout`: HEDDLE_TIMEOUT
  explicit VerbsWorld(int size, std::chrono::milliseconds silence = NetworkOptions{}.verbs_timeout,
                      std::chrono::milliseconds timeout = std::chrono::seconds(30)) {
    std::vector<std::string> addresses;
    for (int rank = 0; rank < size; ++rank) {
      NetworkOptions options;
      options.verbs_device = rank % 2 == 0 ? "rxe0" : "rxe1";
      options.timeout = timeout;
      options.verbs_timeout = silence;
      Result<std::unique_ptr<Network>> network = verbs::open_network(options);
      if (!network.ok()) die(network.status());
      networks.push_back(std::move(network).value());
      addresses.push_back(networks.back()->address());
    }
    for (int rank = 0; rank < size; ++rank) {
      Result<std::unique_ptr<Transport>> made =
          networks[static_cast<std::size_t>(rank)]->connect(rank, addresses);
      if (!made.ok()) die(made.status());
      transports.push_back(std::move(made).value());
    }
  }
  ~VerbsWorld() override { transports.clear(); }
  [[noreturn]] static void die(const Status& status) {
    std::fprintf(stderr, "%s\n", status.message().c_str());
    std::abort();
  }
  void leave(int rank) {
    transports[static_cast<std::size_t>(rank)].reset();
    networks[static_cast<std::size_t>(rank)].reset();
  }
  std::vector<std::unique_ptr<Network>> networks;
};

inline std::vector<WorldKind> worlds_to_test() {
  WorldKind verbs{"verbs",
                  [](int size) -> std::unique_ptr<World> { return std::make_unique<VerbsWorld>(size); }};
  // What is being written to by a peer cannot be taken back but by ending the connection.
  verbs.cancel_ends_connection = true;
  return {verbs};
}

}  // namespace heddle::test
