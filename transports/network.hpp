// A network between nodes, from the side of whoever sets up a communicator: each rank opens it alone, the
// ranks tell each other its addresses, and it becomes a Transport.
//
// What a network needs of the system (UCX, libibverbs) is not everywhere, so that each but TCP is a module of
// its own, lib/heddle/libheddle_network_NAME.so, which is opened when it is wanted
// (setup/network_module.hpp).
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/port_range.hpp"
#include "base/status.hpp"
#include "transports/transport.hpp"

namespace heddle {

struct NetworkOptions {
  // How long a connection to a peer may take before it counts as unreachable; 0: for ever.
  std::chrono::milliseconds timeout{0};
  std::string tcp_interfaces;                     // HEDDLE_TCP_INTERFACES
  PortRange tcp_ports;                            // HEDDLE_TCP_PORTS
  std::string tcp_congestion;                     // HEDDLE_TCP_CONGESTION
  std::string verbs_device;                       // of HEDDLE_VERBS_DEVICE, this rank's
  int verbs_gid = -1;                             // HEDDLE_VERBS_GID
  std::chrono::milliseconds verbs_timeout{7000};  // HEDDLE_VERBS_TIMEOUT
  int verbs_traffic_class = 0;                    // HEDDLE_VERBS_TRAFFIC_CLASS
  int verbs_sl = 0;                               // HEDDLE_VERBS_SL
  int verbs_pkey = -1;                            // HEDDLE_VERBS_PKEY
  bool verbs_odp = false;                         // HEDDLE_VERBS_ODP
};

class Network {
 public:
  Network() = default;
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  virtual ~Network() = default;

  // What the other ranks need to reach this one: any bytes, some hundred of them.
  virtual const std::string& address() const = 0;

  // What was found and is used (device, port, protocol), in a few words for the log.
  virtual std::string describe() const = 0;

  // Once. `addresses` by rank; this rank is `rank`, and those that it never reaches by this network are
  // empty. Local: reaches nobody yet, connections are made when they are first used. The transport may need
  // the network: it goes first.
  virtual Result<std::unique_ptr<Transport>> connect(int rank, std::vector<std::string> addresses) = 0;
};

// What a module exports, as `heddle_network_module`. Modules and the library that opens them are compiled
// with the same headers.
struct NetworkModule {
  const char* interface;  // HEDDLE_NETWORK_INTERFACE
  // `unsupported` says in one line what is missing: a device, a permission.
  Result<std::unique_ptr<Network>> (*open)(const NetworkOptions& options);
};
// The version and, in Meson's builds, hashes of this header and of what it includes (transports/meson.build).
#ifndef HEDDLE_NETWORK_INTERFACE
#define HEDDLE_NETWORK_INTERFACE HEDDLE_VERSION_STRING
#endif
constexpr const char* kNetworkModuleSymbol = "heddle_network_module";

}  // namespace heddle
