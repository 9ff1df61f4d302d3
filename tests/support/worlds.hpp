// Every transport behind one face: a world of N connected ranks in this process.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/loopback_p2p.hpp"
#include "transports/loopback/loopback.hpp"
#include "transports/mpi/mpi_transport.hpp"
#include "transports/network.hpp"
#include "transports/shm/shared_memory.hpp"
#include "transports/shm/shm_transport.hpp"
#include "transports/tcp/tcp_network.hpp"
#include "transports/transport.hpp"
#if HEDDLE_TEST_UCX
#include "transports/ucx/ucx_network.hpp"
#endif

namespace heddle::test {

struct World {
  virtual ~World() = default;
  std::vector<std::unique_ptr<Transport>> transports;  // by rank; destroyed by the derived world first
  Transport& of(int rank) { return *transports[static_cast<std::size_t>(rank)]; }
};

struct LoopbackWorld : World {
  LoopbackWorld(int size, LoopbackOptions options) : hub(size, options) {
    for (int r = 0; r < size; ++r)
      transports.push_back(hub.transport(r));
  }
  ~LoopbackWorld() override { transports.clear(); }
  LoopbackHub hub;
};

struct ShmWorld : World {
  explicit ShmWorld(int size) {
    const ShmTransportGeometry geometry{size};
    memory = SharedMemory::create(geometry.bytes(), SharedMemory::Backing::memfd).value();
    std::vector<int> ranks(static_cast<std::size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 0);
    const std::vector<std::optional<WatchedProcess>> processes(ranks.size(), WatchedProcess(getpid()));
    for (int r = 0; r < size; ++r)
      transports.push_back(make_shm_transport(memory.data(), geometry, r, ranks, processes));
  }
  ~ShmWorld() override { transports.clear(); }
  SharedMemory memory;
};

struct MpiWorld : World {
  MpiWorld(int size, LoopbackOptions options) : hub(size, options) {
    for (int r = 0; r < size; ++r) {
      lenders.push_back(std::make_unique<LoopbackP2p>(hub, r));
      transports.push_back(make_mpi_transport(lenders.back()->functions()));
    }
  }
  ~MpiWorld() override { transports.clear(); }
  LoopbackHub hub;
  std::vector<std::unique_ptr<LoopbackP2p>> lenders;
};

// Each rank has opened its network, and all have told each other.
struct NetworkWorld : World {
  NetworkWorld(int size, const std::function<Result<std::unique_ptr<Network>>(int rank)>& open) {
    std::vector<std::string> addresses;
    for (int r = 0; r < size; ++r) {
      networks.push_back(need(open(r)));
      addresses.push_back(networks.back()->address());
    }
    for (int r = 0; r < size; ++r)
      transports.push_back(need(networks[static_cast<std::size_t>(r)]->connect(r, addresses)));
  }
  // Together: a rank that closes its connections may wait for the others.
  ~NetworkWorld() override {
    std::vector<std::thread> closers;
    for (std::unique_ptr<Transport>& transport : transports)
      closers.emplace_back([&transport] { transport.reset(); });
    for (std::thread& closer : closers)
      closer.join();
  }
  void leave(int rank) {
    transports[static_cast<std::size_t>(rank)].reset();
    networks[static_cast<std::size_t>(rank)].reset();
  }
  std::vector<std::unique_ptr<Network>> networks;

 private:
  template <typename T>
  static T need(Result<T> made) {
    if (!made.ok()) {
      std::fprintf(stderr, "%s\n", made.status().message().c_str());
      std::abort();
    }
    return std::move(made).value();
  }
};

// A kind of world, for parameterised tests.
struct WorldKind {
  const char* name;
  std::function<std::unique_ptr<World>(int size)> make;
  // UCX takes back no message that the peer may be moving already, but for ending the connection.
  bool cancel_ends_connection = false;
  bool tells_lengths = true;
};
inline std::ostream& operator<<(std::ostream& out, const WorldKind& kind) {
  return out << kind.name;
}

inline std::vector<WorldKind> all_worlds() {
  const auto loopback = [](LoopbackOptions o) {
    return [o](int size) -> std::unique_ptr<World> { return std::make_unique<LoopbackWorld>(size, o); };
  };
  LoopbackOptions eager;
  eager.eager_bytes = SIZE_MAX;
  LoopbackOptions rendezvous;
  rendezvous.eager_bytes = 0;
  LoopbackOptions delayed;
  delayed.eager_bytes = 256;
  delayed.max_delay = 7;
  std::vector<WorldKind> kinds{
      {"loopback_eager", loopback(eager)},
      {"loopback_rendezvous", loopback(rendezvous)},
      {"loopback_delayed", loopback(delayed)},
      {"shm", [](int size) -> std::unique_ptr<World> { return std::make_unique<ShmWorld>(size); }},
      {"mpi",
       [delayed](int size) -> std::unique_ptr<World> { return std::make_unique<MpiWorld>(size, delayed); },
       false, false},
      {"tcp",
       [](int size) -> std::unique_ptr<World> {
         return std::make_unique<NetworkWorld>(size, [](int) { return open_tcp_network({}); });
       },
       true}};
#if HEDDLE_TEST_UCX
  kinds.push_back({"ucx",
                   [](int size) -> std::unique_ptr<World> {
                     return std::make_unique<NetworkWorld>(size, [](int) { return open_ucx_network({}); });
                   },
                   true});
#endif
  return kinds;
}

}  // namespace heddle::test
