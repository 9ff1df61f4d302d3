#include "setup/node_connections.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "setup/internode.hpp"
#include "setup/network_module.hpp"
#include "transports/mpi/mpi_transport.hpp"
#include "transports/tcp/tcp_network.hpp"

namespace heddle {
namespace {

class NodeConnections {
 public:
  NodeConnections(const Bootstrap& bootstrap, const Config& config, const std::vector<Hello>& hellos,
                  Connections& connections)
      : bootstrap_(bootstrap), config_(config), hellos_(hellos), connections_(connections) {}

  Status make();

 private:
  Status agree(const Status& mine) { return heddle::agree(bootstrap_, mine); }

  void leave_out_failed(std::vector<std::string>& names);
  Result<std::vector<Internode>> usable_ways(const std::vector<std::string>& names, bool compare);
  Status no_way(Code code) const;
  WaitPolicy trying_policy(Transport& transport) const;
  Status drop_unreachable(std::vector<Internode>& ways);
  Result<bool> are_slow(std::span<const TimedWay> ways);
  Result<std::vector<InternodeTimes>> time_ways(const std::vector<Internode>& ways);
  static std::string compare(const std::vector<Internode>& ways, const std::vector<InternodeTimes>& times);
  Result<Internode> borrow_messages();
  std::string verbs_device() const;
  Result<Internode> join_network(const std::string& name);
  Result<std::vector<std::string>> exchange(const std::string& address);

  const Bootstrap& bootstrap_;
  const Config& config_;
  const std::vector<Hello>& hellos_;
  Connections& connections_;
  std::vector<std::string> left_out_;  // ways that are not tried, and why not
};

Result<Internode> NodeConnections::borrow_messages() {
  if (std::any_of(hellos_.begin(), hellos_.end(), [](const Hello& h) { return h.lends == 0; }))
    return Status(
        Code::unsupported,
        "some rank has no MPI messages to lend, as with heddle_comm_create_env and heddle_comm_split, or too "
        "many communicators have lent theirs: put tcp, ucx or verbs into HEDDLE_TRANSPORTS, or make the "
        "communicator with heddle_comm_create_mpi");
  Result<heddle_p2p> p2p = bootstrap_.make_p2p();
  Internode way;
  if (p2p.ok()) way.lent = std::make_unique<LentMessages>(p2p.value());
  HEDDLE_TRY(agree(p2p.status()));
  way.transport = make_mpi_transport(way.lent->p2p());
  return way;
}

// Every rank's address, to those that it has no shared memory with.
Result<std::vector<std::string>> NodeConnections::exchange(const std::string& address) {
  std::vector<std::uint64_t> lengths;
  HEDDLE_TRY(gather(bootstrap_, std::uint64_t{address.size()}, lengths));
  const std::size_t longest = *std::max_element(lengths.begin(), lengths.end());
  std::string mine = address;
  mine.resize(longest);
  std::string all(longest * lengths.size(), '\0');
  HEDDLE_TRY(bootstrap_.allgather(mine.data(), all.data(), longest));
  const TopologyView& t = connections_.topology;
  std::vector<std::string> addresses(lengths.size());
  for (std::size_t rank = 0; rank < addresses.size(); ++rank) {
    if (t.node_of(static_cast<std::int32_t>(rank)) != t.node_of(bootstrap_.rank))
      addresses[rank] = all.substr(rank * longest, lengths[rank]);
  }
  return addresses;
}

// The ranks of a node take those of a list in turn.
std::string NodeConnections::verbs_device() const {
  const std::vector<std::string_view> devices = split_list(config_.verbs_device);
  if (devices.empty()) return "";
  const auto place = static_cast<std::size_t>(connections_.topology.member_index(bootstrap_.rank));
  return std::string(devices[place % devices.size()]);
}

Result<Internode> NodeConnections::join_network(const std::string& name) {
  const NetworkOptions options = network_options(config_, verbs_device());
  Result<std::unique_ptr<Network>> opened =
      name == "tcp" ? open_tcp_network(options) : open_network(name, config_.modules, options);
  HEDDLE_TRY(agree(opened.status()));
  Internode way;
  way.network = std::move(opened).value();
  Result<std::vector<std::string>> addresses = exchange(way.network->address());
  HEDDLE_TRY(addresses.status());
  Result<std::unique_ptr<Transport>> made =
      way.network->connect(bootstrap_.rank, std::move(addresses).value());
  HEDDLE_TRY(agree(made.status()));
  way.transport = std::move(made).value();
  return way;
}

// Those of which a rank knows that it has waited for them in vain: what does not get through a firewall never
// does, and each communicator would wait anew. That was said then.
void NodeConnections::leave_out_failed(std::vector<std::string>& names) {
  for (const Hello& hello : hellos_) {
    for (const std::string_view failed : split_list(hello.failed_networks)) {
      if (std::erase(names, failed) > 0)
        left_out_.push_back(fmt::format("{}: has not connected ranks of this job before", failed));
    }
  }
}

// Those that every rank can use, in the order of the list: all of them where they are to be compared, or else
// the first. Reasons why others cannot be used go to `passed_over`.
Result<std::vector<Internode>> NodeConnections::usable_ways(const std::vector<std::string>& names,
                                                            bool compare) {
  std::vector<Internode> ways;
  Code code = Code::ok;
  for (const std::string& name : names) {
    Result<Internode> way = name == "mpi" ? borrow_messages() : join_network(name);
    if (way.ok()) {
      ways.push_back(std::move(way).value());
      ways.back().name = name;
      if (!compare) break;
      continue;
    }
    // What went wrong tells more than what is not there.
    if (code == Code::ok || code == Code::unsupported) code = way.status().code();
    // One that comes after others which work is not missed.
    if (ways.empty()) connections_.passed_over.push_back(name + ": " + way.status().message());
  }
  if (!ways.empty()) return ways;
  return no_way(code == Code::ok ? Code::unsupported : code);
}

Status NodeConnections::no_way(Code code) const {
  std::string reasons;
  std::vector<std::string> all = left_out_;
  all.insert(all.end(), connections_.passed_over.begin(), connections_.passed_over.end());
  for (const std::string& each : all)
    reasons += (reasons.empty() ? " (" : "; ") + each;
  return Status(
      code,
      fmt::format("ranks are on {} nodes and no transport in HEDDLE_TRANSPORTS=\"{}\" connects them{}{}",
                  connections_.topology.nodes(), config_.transports, reasons, reasons.empty() ? "" : ")"));
}

// How long a way is waited for while there are others: one that looks open and is not (a firewall) has an
// alternative here. Who is through with it waits for the others' word, and must not have given them up before
// they give the way up.
WaitPolicy NodeConnections::trying_policy(Transport& transport) const {
  constexpr std::chrono::milliseconds kLongEnough{5000};
  WaitPolicy policy = wait_policy(bootstrap_, config_, connections_, &transport);
  policy.timeout = policy.timeout.count() == 0 ? kLongEnough : std::min(policy.timeout / 2, kLongEnough);
  // 0 is for ever.
  policy.timeout = std::max(policy.timeout, std::chrono::milliseconds(1));
  return policy;
}

// Leaves those by which all nodes reach each other.
Status NodeConnections::drop_unreachable(std::vector<Internode>& ways) {
  for (std::size_t i = ways.size(); i-- > 0;) {
    Transport& transport = *ways[i].transport;
    const Status reached =
        agree(reach_internode(transport, connections_.topology, bootstrap_.rank, trying_policy(transport)));
    if (reached.ok()) continue;
    connections_.passed_over.push_back(ways[i].name + ": " + reached.message());
    connections_.process->note_failed_network(ways[i].name);
    ways.erase(ways.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return ways.empty() ? no_way(Code::peer_failed) : Status();
}

// One exchange by each, now that connections are made, tells whether there is time for many.
Result<bool> NodeConnections::are_slow(std::span<const TimedWay> ways) {
  constexpr double kSlow = 0.05;  // seconds: fifty of these by two ways would take five
  double longest = 0;
  for (const TimedWay& way : ways) {
    const TimePoint start = now(way.policy.clock);
    // One that fails here fails when it is timed.
    (void)reach_internode(*way.transport, connections_.topology, bootstrap_.rank, way.policy);
    longest = std::max(longest, std::chrono::duration<double>(now(way.policy.clock) - start).count());
  }
  std::vector<double> all;
  HEDDLE_TRY(gather(bootstrap_, longest, all));
  return *std::max_element(all.begin(), all.end()) > kSlow;
}

// What the slowest node needs for the exchanges, by each way; infinity where one of them failed.
Result<std::vector<InternodeTimes>> NodeConnections::time_ways(const std::vector<Internode>& ways) {
  std::vector<TimedWay> timed;
  for (const Internode& way : ways)
    timed.push_back({way.transport.get(), trying_policy(*way.transport)});
  std::vector<InternodeTimes> slowest(ways.size());
  const Result<bool> slow = are_slow(timed);
  HEDDLE_TRY(slow.status());
  const std::vector<InternodeTimes> mine =
      time_internode(timed, connections_.topology, bootstrap_.rank, slow.value());
  for (std::size_t i = 0; i < ways.size(); ++i) {
    std::vector<InternodeTimes> all;
    HEDDLE_TRY(gather(bootstrap_, mine[i], all));
    for (const InternodeTimes& each : all) {
      slowest[i].small_ns = std::max(slowest[i].small_ns, each.small_ns);
      slowest[i].large_ns = std::max(slowest[i].large_ns, each.large_ns);
    }
    slowest[i].lent = ways[i].lent != nullptr;
  }
  return slowest;
}

std::string NodeConnections::compare(const std::vector<Internode>& ways,
                                     const std::vector<InternodeTimes>& times) {
  std::string text;
  for (std::size_t i = 0; i < ways.size(); ++i)
    text += fmt::format("{}{} takes {:.0f} us for 8 B and {:.0f} for 64 KiB among all nodes",
                        i == 0 ? "" : ", ", ways[i].name, times[i].small_ns / 1e3, times[i].large_ns / 1e3);
  return text;
}

// The fastest way that every rank can use: as known by the first rank of the first node, or as measured now.
Status NodeConnections::make() {
  const TopologyView& t = connections_.topology;
  std::vector<std::string> names;
  for (const std::string_view listed : split_list(config_.transports)) {
    if (listed != "shm") names.emplace_back(listed);
  }
  // A job without MPI has none of its messages, and nobody expects them.
  if (names.size() > 1 &&
      std::all_of(hellos_.begin(), hellos_.end(), [](const Hello& h) { return h.lends == 0; }))
    std::erase(names, "mpi");
  leave_out_failed(names);
  std::string known = hellos_[static_cast<std::size_t>(t.members(0).front())].internode;
  if (std::find(names.begin(), names.end(), known) == names.end()) known.clear();
  // The others stay behind it, for those who cannot use it.
  std::stable_partition(names.begin(), names.end(), [&](const std::string& name) { return name == known; });
  Result<std::vector<Internode>> usable = usable_ways(names, known.empty() && config_.measure);
  HEDDLE_TRY(usable.status());
  std::vector<Internode> ways = std::move(usable).value();
  std::size_t best = 0;
  if (ways.size() > 1) HEDDLE_TRY(drop_unreachable(ways));
  if (ways.size() > 1) {
    const Result<std::vector<InternodeTimes>> times = time_ways(ways);
    HEDDLE_TRY(times.status());
    best = fastest(times.value(), bootstrap_.has_requests);
    if (std::isinf(times.value()[best].small_ns)) return no_way(Code::peer_failed);
    connections_.comparison = compare(ways, times.value());
  }
  connections_.internode = std::move(ways[best]);
  connections_.process->use_internode(connections_.internode.name);
  // By the last in the list first, on every rank: giving messages back may be collective.
  while (!ways.empty())
    ways.pop_back();
  return {};
}

}  // namespace

Status connect_nodes(const Bootstrap& bootstrap, const Config& config, const std::vector<Hello>& hellos,
                     Connections& connections) {
  if (connections.topology.nodes() == 1) return {};
  return NodeConnections(bootstrap, config, hellos, connections).make();
}

}  // namespace heddle
