#include "transports/tcp/tcp_network.hpp"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <utility>

#include "base/descriptors.hpp"
#include "transports/host_name.hpp"
#include "transports/tcp/tcp_transport.hpp"

namespace heddle {
namespace {

using tcp::Place;
using tcp::TcpTransport;

// Another host's would lead to this one.
Status leave_out_loopback(int rank, Place& place) {
  if (place.host == host_name()) return {};
  std::erase_if(place.addresses, tcp::is_loopback);
  if (!place.addresses.empty()) return {};
  return Status(Code::unsupported,
                fmt::format("rank {} on {} has no address but its loopback's", rank, place.host));
}

struct Congestion {
  std::string name;    // of all connections; empty: the system's
  std::string if_far;  // of those to ranks that are not near; empty: the same
  std::string told;
};

// BBR is for long paths that lose packets; between hosts near to each other sums of 128 KiB and more take
// twice as long by it (docs/performance.md, two hosts). Connections begin without: once it has had one, that
// is paced for good.
Result<Congestion> choose_congestion(const Socket& listener, const std::string& asked) {
  if (!asked.empty()) {
    HEDDLE_TRY(tcp_choose_congestion(listener, asked));
    return Congestion{asked, {}, asked};
  }
  const std::string systems = tcp_congestion(listener);
  if (!tcp_paces(systems) || !tcp_choose_congestion(listener, kReno).ok()) return Congestion{{}, {}, systems};
  return Congestion{kReno, systems, fmt::format("{}, {} to ranks that are near", systems, kReno)};
}

// What one communicator has found out helps the next. Never destroyed: communicators may be made while the
// process ends.
std::shared_ptr<tcp::KnownWays> known_ways() {
  static const auto& known = *new auto(std::make_shared<tcp::KnownWays>());
  return known;
}

class TcpNetwork final : public Network {
 public:
  TcpNetwork(TcpTransport::Setup setup, Place place, std::string congestion)
      : setup_(std::move(setup)),
        place_(std::move(place)),
        congestion_(std::move(congestion)),
        address_(tcp::encode(place_)) {}

  const std::string& address() const override { return address_; }

  std::string describe() const override {
    const Descriptors descriptors = count_descriptors();
    const int connections = transport_ != nullptr ? transport_->connections() : 0;
    return fmt::format("TCP at {} ({}), {} connection{}, {} of {} file descriptors",
                       tcp::to_string(place_.addresses.front(), place_.port), congestion_, connections,
                       connections == 1 ? "" : "s", descriptors.open, descriptors.limit);
  }

  Result<std::unique_ptr<Transport>> connect(int rank, std::vector<std::string> addresses) override {
    std::vector<Place> places(addresses.size());
    for (std::size_t i = 0; i < addresses.size(); ++i) {
      if (addresses[i].empty() || i == static_cast<std::size_t>(rank)) continue;
      Result<Place> one = tcp::decode(addresses[i]);
      HEDDLE_TRY(one.status());
      places[i] = std::move(one).value();
      HEDDLE_TRY(leave_out_loopback(static_cast<int>(i), places[i]));
    }
    Result<std::unique_ptr<TcpTransport>> made =
        TcpTransport::make(std::move(setup_), rank, std::move(places));
    HEDDLE_TRY(made.status());
    transport_ = made.value().get();
    return std::unique_ptr<Transport>(std::move(made).value());
  }

 private:
  TcpTransport::Setup setup_;
  Place place_;
  std::string congestion_;  // control
  std::string address_;
  const TcpTransport* transport_ = nullptr;  // goes before this does
};

}  // namespace

Result<std::unique_ptr<Network>> open_tcp_network(const NetworkOptions& options) {
  // Each communicator takes some, and the program has its own uses for descriptors.
  const Descriptors now = count_descriptors();
  if (!has_descriptors(std::min<std::size_t>(now.limit / 4, 256)))
    return Status(
        Code::out_of_memory,
        fmt::format("{} of {} file descriptors are open (ulimit -n), and the program may want the rest",
                    now.open, now.limit));
  Result<std::vector<tcp::Address>> addresses = tcp::local_addresses(options.tcp_interfaces);
  HEDDLE_TRY(addresses.status());
  Result<Socket> listener = tcp_listen(options.tcp_ports);
  HEDDLE_TRY(listener.status());
  Result<Congestion> congestion = choose_congestion(listener.value(), options.tcp_congestion);
  HEDDLE_TRY(congestion.status());
  std::uint64_t key = 0;
  if (::getrandom(&key, sizeof key, 0) != sizeof key) return system_error("getrandom", errno);
  Place place{host_name(), key, static_cast<std::uint16_t>(tcp_local_port(listener.value())),
              addresses.value()};
  TcpTransport::Setup setup{std::move(listener).value(),
                            key,
                            std::move(addresses).value(),
                            options.timeout,
                            known_ways(),
                            congestion->name,
                            congestion->if_far};
  return std::unique_ptr<Network>(
      std::make_unique<TcpNetwork>(std::move(setup), std::move(place), std::move(congestion->told)));
}

}  // namespace heddle
