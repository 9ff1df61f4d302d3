#include "comm/setup.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

#include "comm/core_claim.hpp"
#include "comm/host_identity.hpp"
#include "comm/network_module.hpp"
#include "comm/node_plan.hpp"
#include "select/selector.hpp"
#include "transports/mpi/mpi_transport.hpp"
#include "transports/shm/shm_transport.hpp"

namespace heddle {
namespace {

constexpr std::uint32_t kMagic = 0x6864646c;  // "hddl"
constexpr std::uint32_t kProtocol = 6;        // raised whenever ranks of two builds could not work together

// The settings that decide how a collective runs must be the same everywhere; each travels as a hash.
constexpr const char* kSharedSettings[] = {"HEDDLE_ALGORITHM",     "HEDDLE_TUNING_FILE (its content)",
                                           "HEDDLE_TRANSPORTS",    "HEDDLE_SLOT_BYTES",
                                           "HEDDLE_SHM",           "HEDDLE_MEASURE",
                                           "HEDDLE_SPARSE",        "HEDDLE_COMPRESS",
                                           "HEDDLE_COMPRESS_FROM", "HEDDLE_COMPRESS_TYPES"};
constexpr std::size_t kSettings = std::size(kSharedSettings);

// What every rank tells every other, first of all.
struct Hello {
  std::uint32_t magic;
  std::uint32_t protocol;
  std::uint32_t enabled;
  std::uint32_t lends;  // has messages to lend
  std::int32_t pid;
  std::uint32_t small_stores;  // ProcessState's
  MessageCost message_cost;    // likewise
  std::uint64_t node;
  std::uint64_t settings[kSettings];
  char host[40];
  CoreClaim cores;
};

// How a rank fared in a stage that others must know about.
struct Outcome {
  std::int32_t code;
  char message[252];
};

std::uint64_t hash_text(const std::string& text) {
  std::uint64_t h = 14695981039346656037ULL;  // FNV-1a
  for (const char c : text)
    h = (h ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return h;
}

std::string content_of(const std::string& path) {
  if (path.empty()) return "";
  return tuning_text(path).value_or("unreadable");
}

Hello make_hello(const Bootstrap& bootstrap, const Config& config) {
  Hello hello{};
  hello.magic = kMagic;
  hello.protocol = kProtocol;
  hello.enabled = config.enable ? 1 : 0;
  hello.lends = bootstrap.make_p2p ? 1 : 0;
  hello.pid = getpid();
  if (bootstrap.process) hello.message_cost = bootstrap.process->message_cost();
  hello.small_stores =
      bootstrap.process ? bootstrap.process->small_stores.load(std::memory_order_relaxed) : 0;
  const HostIdentity identity = host_identity();
  hello.node = bootstrap.node.value_or(identity.value);
  const std::string settings[kSettings] = {
      config.algorithm,
      content_of(config.tuning_file),
      config.transports,
      std::to_string(config.slot_bytes),
      config.shm_backing,
      config.measure ? "1" : "0",
      config.sparse ? "1" : "0",
      config.compress,
      std::to_string(config.compress_from),
      std::string(config.compress_f32 ? "f" : "") + (config.compress_f64 ? "d" : "")};
  for (std::size_t i = 0; i < kSettings; ++i)
    hello.settings[i] = hash_text(settings[i]);
  hello.cores = core_claim();
  std::snprintf(hello.host, sizeof hello.host, "%s", identity.host_name.c_str());
  return hello;
}

// The first reason, in rank order, why these ranks cannot use heddle together. Every rank finds the same one.
Status check_hellos(const std::vector<Hello>& hellos) {
  for (std::size_t rank = 0; rank < hellos.size(); ++rank) {
    const Hello& h = hellos[rank];
    const std::string who = "rank " + std::to_string(rank);
    if (h.magic != kMagic || h.protocol != kProtocol) {
      return Status(Code::unsupported, who + " runs another version of heddle (protocol " +
                                           std::to_string(h.protocol) + ", here " +
                                           std::to_string(kProtocol) + "): use one build on all ranks");
    }
    if (h.enabled == 0) return Status(Code::unsupported, who + " has HEDDLE_ENABLE=0");
    for (std::size_t i = 0; i < kSettings; ++i) {
      if (h.settings[i] != hellos[0].settings[i]) {
        return Status(Code::unsupported, std::string(kSharedSettings[i]) + " differs between rank 0 and " +
                                             who + ": set it to one value on all ranks");
      }
    }
  }
  return {};
}

class Setup {
 public:
  Setup(const Bootstrap& bootstrap, const Config& config)
      : bootstrap_(bootstrap), config_(config), connections_(std::make_unique<Connections>()) {
    connections_->free_work = bootstrap.free_work;
    connections_->process = bootstrap.process ? bootstrap.process : std::make_shared<ProcessState>();
  }

  Result<std::unique_ptr<Connections>> run();

 private:
  template <typename T>
  Status allgather(const T& mine, std::vector<T>& all) {
    all.resize(static_cast<std::size_t>(bootstrap_.size));
    return bootstrap_.allgather(&mine, all.data(), sizeof(T));
  }
  Status agree(const Status& mine) { return heddle::agree(bootstrap_, mine); }

  void find_topology(const std::vector<Hello>& hellos);
  Status divide_nodes();
  std::vector<std::uint16_t> plan_of_node() const;
  Status share_memory();
  Status try_backing(SharedMemory::Backing backing);
  Status connect_nodes(const std::vector<Hello>& hellos);
  Status borrow_messages(const std::vector<Hello>& hellos);
  Status join_network(const std::string& name);
  Result<std::vector<std::string>> exchange(const std::string& address);
  void build_shm();
  void build_ports();

  std::size_t team_bytes() const {
    const TopologyView& t = connections_->topology;
    return heddle::team_bytes(t, t.node_of(bootstrap_.rank), connections_->geometry);
  }
  ShmTransportGeometry ring_geometry() const { return {static_cast<int>(members().size())}; }
  const std::vector<std::int32_t>& members() const {
    const TopologyView& t = connections_->topology;
    return t.members(t.node_of(bootstrap_.rank));
  }

  const Bootstrap& bootstrap_;
  const Config& config_;
  std::unique_ptr<Connections> connections_;
};

// Ranks with equal node identities share a node; without the shm transport everyone is alone.
void Setup::find_topology(const std::vector<Hello>& hellos) {
  const std::vector<std::string_view> listed = split_list(config_.transports);
  const bool shm = std::find(listed.begin(), listed.end(), "shm") != listed.end();
  std::map<std::uint64_t, std::int32_t> number;
  std::vector<std::int32_t> node_of;
  for (const Hello& h : hellos) {
    const auto next = static_cast<std::int32_t>(shm ? number.size() : node_of.size());
    node_of.push_back(shm ? number.emplace(h.node, next).first->second : next);
    connections_->host_of.emplace_back(h.host);
    connections_->pid_of.push_back(h.pid);
  }
  connections_->topology = TopologyView({std::move(node_of)});

  connections_->message_cost =
      hellos[static_cast<std::size_t>(connections_->topology.members(0).front())].message_cost;

  bool measured = true;
  for (const std::int32_t rank : members()) {
    connections_->claims.push_back(hellos[static_cast<std::size_t>(rank)].cores);
    measured = measured && hellos[static_cast<std::size_t>(rank)].small_stores != 0;
  }
  connections_->cores = cores_of(connections_->claims);
  connections_->own_core = each_has_a_core(connections_->claims);
  if (!connections_->own_core) connections_->geometry.small_reads = kSmallReadsOnSharedCores;
  // Where ranks take turns on cores, times say nothing.
  connections_->measures = members().size() > 1 && connections_->own_core && !measured;
}

// Slot size in units of 4 KiB, then the domain of each member.
std::vector<std::uint16_t> Setup::plan_of_node() const {
  const NodePlan plan = connections_->process->plan_node(connections_->claims);
  std::vector<std::uint16_t> told{static_cast<std::uint16_t>(plan.slot_bytes >> 12)};
  told.insert(told.end(), plan.domain_of.begin(), plan.domain_of.end());
  return told;
}

// The first member of each node decides how its ranks share it.
Status Setup::divide_nodes() {
  const TopologyView& nodes = connections_->topology;
  std::size_t most = 1;
  for (std::int32_t node = 0; node < nodes.nodes(); ++node)
    most = std::max(most, nodes.members(node).size());
  if (most == 1) return {};
  std::vector<std::uint16_t> mine;
  if (members().size() > 1 && members().front() == bootstrap_.rank) mine = plan_of_node();
  mine.resize(1 + most);
  std::vector<std::uint16_t> all(mine.size() * static_cast<std::size_t>(bootstrap_.size));
  HEDDLE_TRY(bootstrap_.allgather(mine.data(), all.data(), mine.size() * sizeof mine[0]));

  std::vector<std::int32_t> node_of;
  std::vector<std::int32_t> domain_of;
  std::map<std::pair<std::int32_t, std::uint16_t>, std::int32_t> number;
  for (std::int32_t rank = 0; rank < nodes.size(); ++rank) {
    const std::int32_t node = nodes.node_of(rank);
    const auto first = static_cast<std::size_t>(nodes.members(node).front());
    const auto place = static_cast<std::size_t>(nodes.member_index(rank));
    const std::uint16_t domain = all[first * mine.size() + 1 + place];
    const auto next = static_cast<std::int32_t>(number.size());
    node_of.push_back(node);
    domain_of.push_back(number.emplace(std::pair{node, domain}, next).first->second);
  }
  const auto first = static_cast<std::size_t>(members().front());
  connections_->geometry.slot_bytes =
      config_.slot_bytes != 0 ? config_.slot_bytes : std::size_t{all[first * mine.size()]} << 12;
  connections_->topology = TopologyView({std::move(node_of)}, std::move(domain_of));
  return {};
}

// One attempt: each node's first member creates, the others attach, and all ranks learn whether all could.
Status Setup::try_backing(SharedMemory::Backing backing) {
  const bool creates = members().front() == bootstrap_.rank && members().size() > 1;
  Status mine;
  SharedMemory memory;
  if (creates) {
    Result<SharedMemory> created = SharedMemory::create(team_bytes() + ring_geometry().bytes(), backing);
    mine = created.status();
    if (created.ok()) memory = std::move(created).value();
  }
  std::vector<SharedMemoryHandle> handles;
  HEDDLE_TRY(allgather(memory.handle(), handles));
  if (!creates && members().size() > 1) {
    const SharedMemoryHandle& handle = handles[static_cast<std::size_t>(members().front())];
    // Without a handle its creator failed, and says why.
    if (handle.bytes > 0) {
      Result<SharedMemory> attached = SharedMemory::attach(handle);
      mine = attached.status();
      if (attached.ok()) memory = std::move(attached).value();
    }
  }
  HEDDLE_TRY(agree(mine));
  memory.publish_done();
  connections_->memory = std::move(memory);
  return {};
}

Status Setup::share_memory() {
  if (connections_->topology.nodes() == bootstrap_.size) return {};
  if (config_.shm_backing == "posix") return try_backing(SharedMemory::Backing::posix);
  const Status memfd = try_backing(SharedMemory::Backing::memfd);
  if (memfd.ok() || config_.shm_backing == "memfd") return memfd;
  const Status posix = try_backing(SharedMemory::Backing::posix);
  if (posix.ok()) return posix;
  return Status(posix.code(), "no shared memory: " + memfd.message() + "; " + posix.message());
}

Status Setup::borrow_messages(const std::vector<Hello>& hellos) {
  if (std::any_of(hellos.begin(), hellos.end(), [](const Hello& h) { return h.lends == 0; }))
    return Status(Code::unsupported, "not started from an MPI communicator");
  Result<heddle_p2p> p2p = bootstrap_.make_p2p();
  if (p2p.ok()) connections_->lent = std::make_unique<LentMessages>(p2p.value());
  const Status agreed = agree(p2p.status());
  if (!agreed.ok()) {
    connections_->lent.reset();
    return agreed;
  }
  connections_->far = make_mpi_transport(connections_->lent->p2p());
  return {};
}

// Every rank's address, to those that it has no shared memory with.
Result<std::vector<std::string>> Setup::exchange(const std::string& address) {
  std::vector<std::uint64_t> lengths;
  HEDDLE_TRY(allgather(std::uint64_t{address.size()}, lengths));
  const std::size_t longest = *std::max_element(lengths.begin(), lengths.end());
  std::string mine = address;
  mine.resize(longest);
  std::string all(longest * lengths.size(), '\0');
  HEDDLE_TRY(bootstrap_.allgather(mine.data(), all.data(), longest));
  const TopologyView& t = connections_->topology;
  std::vector<std::string> addresses(lengths.size());
  for (std::size_t rank = 0; rank < addresses.size(); ++rank) {
    if (t.node_of(static_cast<std::int32_t>(rank)) != t.node_of(bootstrap_.rank))
      addresses[rank] = all.substr(rank * longest, lengths[rank]);
  }
  return addresses;
}

Status Setup::join_network(const std::string& name) {
  Result<std::unique_ptr<Network>> opened = open_network(
      name, config_.modules,
      {.timeout = config_.timeout, .verbs_device = config_.verbs_device, .verbs_gid = config_.verbs_gid});
  HEDDLE_TRY(agree(opened.status()));
  std::unique_ptr<Network> network = std::move(opened).value();
  Result<std::vector<std::string>> addresses = exchange(network->address());
  HEDDLE_TRY(addresses.status());
  Result<std::unique_ptr<Transport>> made = network->connect(bootstrap_.rank, std::move(addresses).value());
  HEDDLE_TRY(agree(made.status()));
  connections_->network = std::move(network);
  connections_->far = std::move(made).value();
  return {};
}

// The first of the list that every rank can use.
Status Setup::connect_nodes(const std::vector<Hello>& hellos) {
  if (connections_->topology.nodes() == 1) return {};
  Code code = Code::ok;
  std::string reasons;
  for (const std::string_view listed : split_list(config_.transports)) {
    if (listed == "shm") continue;
    const std::string name(listed);
    const Status status = name == "mpi" ? borrow_messages(hellos) : join_network(name);
    if (status.ok()) return {};
    connections_->passed_over.push_back(name + ": " + status.message());
    if (code == Code::ok) code = status.code();
    reasons += (reasons.empty() ? " (" : "; ") + connections_->passed_over.back();
  }
  if (code == Code::ok) code = Code::unsupported;
  return Status(code, "ranks are on " + std::to_string(connections_->topology.nodes()) +
                          " nodes and no transport in HEDDLE_TRANSPORTS=\"" + config_.transports +
                          "\" connects them" + reasons + (reasons.empty() ? "" : ")"));
}

void Setup::build_shm() {
  if (members().size() < 2) return;
  std::vector<int> ranks(members().begin(), members().end());
  std::vector<int> pids;
  for (const int rank : ranks)
    pids.push_back(connections_->pid_of[static_cast<std::size_t>(rank)]);
  const int member = connections_->topology.member_index(bootstrap_.rank);
  std::byte* memory = connections_->memory.data();
  connections_->teams = make_teams(connections_->topology, bootstrap_.rank, connections_->geometry, memory,
                                   &connections_->process->heap);
  connections_->shm =
      make_shm_transport(memory + team_bytes(), ring_geometry(), member, std::move(ranks), std::move(pids));
}

void Setup::build_ports() {
  Connections& c = *connections_;
  const TopologyView& t = c.topology;
  for (std::int32_t rank = 0; rank < t.size(); ++rank) {
    const bool here = rank != bootstrap_.rank && t.node_of(rank) == t.node_of(bootstrap_.rank);
    c.ports.transport_of.push_back(here ? c.shm.get() : rank != bootstrap_.rank ? c.far.get() : nullptr);
  }
  if (c.shm) c.ports.transports.push_back(c.shm.get());
  if (c.far) c.ports.transports.push_back(c.far.get());
  for (std::size_t kind = 0; kind < c.teams.size(); ++kind)
    c.ports.teams[kind] = c.teams[kind].get();
}

Result<std::unique_ptr<Connections>> Setup::run() {
  std::vector<Hello> hellos;
  HEDDLE_TRY(allgather(make_hello(bootstrap_, config_), hellos));
  HEDDLE_TRY(check_hellos(hellos));
  find_topology(hellos);
  HEDDLE_TRY(divide_nodes());
  HEDDLE_TRY(share_memory());
  HEDDLE_TRY(connect_nodes(hellos));
  build_shm();
  build_ports();
  return std::move(connections_);
}

}  // namespace

Status agree(const Bootstrap& bootstrap, const Status& mine) {
  Outcome outcome{};
  outcome.code = static_cast<std::int32_t>(mine.code());
  std::snprintf(outcome.message, sizeof outcome.message, "%s", mine.message().c_str());
  std::vector<Outcome> all(static_cast<std::size_t>(bootstrap.size));
  HEDDLE_TRY(bootstrap.allgather(&outcome, all.data(), sizeof outcome));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].code == 0) continue;
    return Status(static_cast<Code>(all[rank].code),
                  "rank " + std::to_string(rank) + ": " + all[rank].message);
  }
  return {};
}

CostModel Connections::cost_model() const {
  // Not this rank's own transports': a rank that is alone on its node must come to the same choices.
  const LinearCost estimate = far ? far->capabilities().cost : LinearCost{2000, 0.15};
  const MessageCost between{estimate.fixed_ns, estimate.per_byte_ns, estimate.fixed_ns / 4};
  CostModel model = default_cost_model(
      kShmMessageCost, message_cost != MessageCost{} ? message_cost : between, topology.has_domains());
  if (free_work) model.fold = model.copy = {};
  return model;
}

Result<std::unique_ptr<Connections>> connect(const Bootstrap& bootstrap, const Config& config) {
  return Setup(bootstrap, config).run();
}

}  // namespace heddle
