// Ranks over two devices that are joined by a cable: those with even numbers on rxe0, the others on rxe1.
#pragma once

#include <chrono>
#include <memory>

#include "support/worlds.hpp"
#include "transports/verbs/network.hpp"

namespace heddle::test {

struct VerbsWorld : NetworkWorld {
  // `silence`: HEDDLE_VERBS_TIMEOUT; `timeout`: HEDDLE_TIMEOUT
  explicit VerbsWorld(int size, std::chrono::milliseconds silence = NetworkOptions{}.verbs_timeout,
                      std::chrono::milliseconds timeout = std::chrono::seconds(30))
      : NetworkWorld(size, [silence, timeout](int rank) {
          NetworkOptions options;
          options.verbs_device = rank % 2 == 0 ? "rxe0" : "rxe1";
          options.timeout = timeout;
          options.verbs_timeout = silence;
          return verbs::open_network(options);
        }) {}
};

inline std::vector<WorldKind> worlds_to_test() {
  WorldKind verbs{"verbs",
                  [](int size) -> std::unique_ptr<World> { return std::make_unique<VerbsWorld>(size); }};
  // What is being written to by a peer cannot be taken back but by ending the connection.
  verbs.cancel_ends_connection = true;
  return {verbs};
}

}  // namespace heddle::test
