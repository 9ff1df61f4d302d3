#include "setup/setup.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <new>
#include <optional>
#include <string_view>
#include <utility>

#include "base/descriptors.hpp"
#include "base/text.hpp"
#include "base/watched_process.hpp"
#include "select/selector.hpp"
#include "setup/core_claim.hpp"
#include "setup/hello.hpp"
#include "setup/node_connections.hpp"
#include "setup/node_plan.hpp"
#include "transports/shm/shm_transport.hpp"

namespace heddle {
namespace {

// Left to the program, where members can be watched by a descriptor alone.
constexpr std::size_t kSpareDescriptors = 256;

class Setup {
 public:
  Setup(const Bootstrap& bootstrap, const Config& config)
      : bootstrap_(bootstrap), config_(config), connections_(std::make_unique<Connections>()) {
    connections_->free_work = bootstrap.free_work;
    connections_->preferences = read_preferences(config);
    connections_->process = bootstrap.process ? bootstrap.process : std::make_shared<ProcessState>();
  }

  Result<std::unique_ptr<Connections>> run();

 private:
  Status agree(const Status& mine) { return heddle::agree(bootstrap_, mine); }

  void find_topology(const std::vector<Hello>& hellos);
  void find_cores(const std::vector<Hello>& hellos);
  Status divide_nodes();
  std::vector<std::uint16_t> plan_of_node() const;
  Status share_memory();
  Status try_backing(SharedMemory::Backing backing);
  std::function<bool(int member)> watch_claims() const;
  void build_shm();
  void build_ports();

  std::size_t team_bytes() const {
    const TopologyView& t = connections_->topology;
    return heddle::team_bytes(t, t.node_of(bootstrap_.rank), connections_->geometry);
  }
  ShmTransportGeometry ring_geometry() const { return {static_cast<int>(members().size())}; }
  // Not all members of this node see each other's processes. All of them know.
  bool is_apart() const {
    return std::any_of(members().begin(), members().end(),
                       [&](std::int32_t rank) { return !is_seen_[static_cast<std::size_t>(rank)]; });
  }
  const std::vector<std::int32_t>& members() const {
    const TopologyView& t = connections_->topology;
    return t.members(t.node_of(bootstrap_.rank));
  }

  const Bootstrap& bootstrap_;
  const Config& config_;
  std::unique_ptr<Connections> connections_;
  std::vector<bool> is_seen_;  // by rank: the number of its process means that one here, too
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
    const Hello& mine = hellos[static_cast<std::size_t>(bootstrap_.rank)];
    connections_->started_of.push_back(h.time_namespace == mine.time_namespace ? h.started : 0);
    is_seen_.push_back(h.pid_namespace == mine.pid_namespace && h.pid_namespace != 0);
  }
  connections_->topology = TopologyView({std::move(node_of)});

  connections_->message_cost =
      hellos[static_cast<std::size_t>(connections_->topology.members(0).front())].message_cost;

  find_cores(hellos);
  bool measured = true;
  for (const std::int32_t rank : members())
    measured = measured && hellos[static_cast<std::size_t>(rank)].small_stores != 0;
  if (!connections_->own_core) connections_->geometry.small_reads = kSmallReadsOnSharedCores;
  // Where ranks take turns on cores, times say nothing.
  connections_->measures = members().size() > 1 && connections_->own_core && !measured;
}

void Setup::find_cores(const std::vector<Hello>& hellos) {
  for (const std::int32_t rank : members())
    connections_->claims.push_back(hellos[static_cast<std::size_t>(rank)].cores);
  connections_->cores = cores_of(connections_->claims);
  const CoreClaim& mine = hellos[static_cast<std::size_t>(bootstrap_.rank)].cores;
  // Containers may be nodes of their own, and yet share cores.
  const std::vector<CoreClaim> beside = claims_beside(hellos, bootstrap_.rank);
  connections_->own_core = each_has_a_core(connections_->claims) && each_has_a_core(beside);
  for (std::vector<CoreClaim> same : {connections_->claims, beside}) {
    std::erase_if(same, [&](const CoreClaim& each) {
      return !std::equal(std::begin(each.mask), std::end(each.mask), mine.mask);
    });
    if (static_cast<int>(same.size()) > cores_of(same)) connections_->process->found_turns_on(mine);
  }
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
  const auto most = static_cast<std::size_t>(nodes.most_members());
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
  HEDDLE_TRY(gather(bootstrap_, memory.handle(), handles));
  if (!creates && members().size() > 1) {
    const SharedMemoryHandle& handle = handles[static_cast<std::size_t>(members().front())];
    // Without a handle its creator failed, and says why.
    if (handle.bytes > 0) {
      Result<SharedMemory> attached = SharedMemory::attach(handle);
      mine = attached.status();
      if (attached.ok()) memory = std::move(attached).value();
    }
  }
  if (mine.ok() && is_apart() && has_descriptors(kSpareDescriptors))
    (void)memory.claim(connections_->topology.member_index(bootstrap_.rank));
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
  return Status(posix.code(), "no shared memory: " + memfd.message() + "; " + posix.message() +
                                  "; HEDDLE_TRANSPORTS=tcp does without");
}

// The members whose processes cannot be watched by their numbers, as far as they have claimed their places;
// who has not cannot be watched.
std::function<bool(int member)> Setup::watch_claims() const {
  if (!is_apart()) return nullptr;
  std::vector<bool> has_claimed;
  for (std::size_t m = 0; m < members().size(); ++m)
    has_claimed.push_back(connections_->memory.is_claimed(static_cast<int>(m)));
  return [has_claimed, &memory = connections_->memory](int member) {
    return has_claimed[static_cast<std::size_t>(member)] && !memory.is_claimed(member);
  };
}

void Setup::build_shm() {
  if (members().size() < 2) return;
  std::vector<int> ranks(members().begin(), members().end());
  std::vector<std::optional<WatchedProcess>> processes;
  for (const int rank : ranks) {
    const auto r = static_cast<std::size_t>(rank);
    processes.emplace_back();
    if (is_seen_[r]) processes.back().emplace(connections_->pid_of[r], connections_->started_of[r]);
  }
  const int member = connections_->topology.member_index(bootstrap_.rank);
  std::byte* memory = connections_->memory.data();
  connections_->teams = make_teams(connections_->topology, bootstrap_.rank, connections_->geometry, memory,
                                   &connections_->process->heap);
  connections_->shm = make_shm_transport(memory + team_bytes(), ring_geometry(), member, std::move(ranks),
                                         std::move(processes), watch_claims());
}

void Setup::build_ports() {
  Connections& c = *connections_;
  const TopologyView& t = c.topology;
  for (std::int32_t rank = 0; rank < t.size(); ++rank) {
    const bool here = rank != bootstrap_.rank && t.node_of(rank) == t.node_of(bootstrap_.rank);
    c.ports.transport_of.push_back(here                      ? c.shm.get()
                                   : rank != bootstrap_.rank ? c.internode.transport.get()
                                                             : nullptr);
  }
  if (c.shm) c.ports.transports.push_back(c.shm.get());
  if (c.internode.transport) c.ports.transports.push_back(c.internode.transport.get());
  for (std::size_t kind = 0; kind < c.teams.size(); ++kind)
    c.ports.teams[kind] = c.teams[kind].get();
}

Result<std::unique_ptr<Connections>> Setup::run() {
  std::vector<Hello> hellos;
  HEDDLE_TRY(gather(bootstrap_, make_hello(bootstrap_, config_, connections_->preferences), hellos));
  HEDDLE_TRY(check_hellos(hellos));
  find_topology(hellos);
  HEDDLE_TRY(divide_nodes());
  HEDDLE_TRY(share_memory());
  HEDDLE_TRY(connect_nodes(bootstrap_, config_, hellos, *connections_));
  try {
    build_shm();
    build_ports();
  } catch (const std::bad_alloc&) {
    // All have agreed that nothing is wrong: the others hear of it by this alone.
    if (members().size() > 1 && connections_->shm == nullptr)
      leave_shm_transport(connections_->memory.data() + team_bytes(), ring_geometry(),
                          connections_->topology.member_index(bootstrap_.rank));
    throw;
  }
  return std::move(connections_);
}

// A failure as ranks tell it to each other.
struct Told {
  std::uint16_t code = 0;
  std::uint16_t second_hand = 0;  // another rank had one before
  std::uint32_t bytes = 0;        // of its message
};

// How likely it is the cause of all others. Who waited for a rank that has failed, and says so, is not; least
// of all who heard of it from somebody else.
int weight(const Told& told) {
  const auto code = static_cast<Code>(told.code);
  if (code == Code::ok) return 0;
  if (told.second_hand != 0) return 1;
  return code == Code::peer_failed || code == Code::timeout ? 2 : 3;
}

// The way out comes last in a message, and what it is about first.
std::string of_bearable_length(const std::string& text) {
  constexpr std::size_t kMost = 4000;
  constexpr std::string_view kLeftOut = " ... ";
  if (text.size() <= kMost) return text;
  const std::size_t half = (kMost - kLeftOut.size()) / 2;
  return text.substr(0, half) + std::string(kLeftOut) + text.substr(text.size() - half);
}

}  // namespace

// What went wrong is told in a second round, in which everybody sends as much as that takes: mostly nothing
// does, and rank 0 sends what it hears to everybody.
Status agree(const Bootstrap& bootstrap, const Status& mine) {
  std::string message = of_bearable_length(mine.message());
  const Told own{static_cast<std::uint16_t>(mine.code()), mine.is_at_second_hand(),
                 static_cast<std::uint32_t>(message.size())};
  std::vector<Told> all;
  HEDDLE_TRY(gather(bootstrap, own, all));
  // The first of those that weigh most.
  const auto cause = std::max_element(all.begin(), all.end(),
                                      [](const Told& a, const Told& b) { return weight(a) < weight(b); });
  if (weight(*cause) == 0) return {};

  message.resize(cause->bytes);
  std::string messages(all.size() * cause->bytes, '\0');
  if (cause->bytes > 0) HEDDLE_TRY(bootstrap.allgather(message.data(), messages.data(), cause->bytes));
  const auto rank = static_cast<std::size_t>(cause - all.begin());
  return Status(static_cast<Code>(cause->code),
                fmt::format("rank {}: {}", rank, messages.substr(rank * cause->bytes, cause->bytes)));
}

CostModel Connections::cost_model() const {
  // Not this rank's own transports': a rank that is alone on its node must come to the same choices.
  const LinearCost estimate =
      internode.transport ? internode.transport->capabilities().cost : LinearCost{2000, 0.15};
  const MessageCost between{estimate.fixed_ns, estimate.per_byte_ns, estimate.fixed_ns / 4};
  CostModel model = default_cost_model(
      kShmMessageCost, message_cost != MessageCost{} ? message_cost : between, topology.has_domains());
  if (free_work) model.fold = model.copy = {};
  return model;
}

WaitPolicy wait_policy(const Bootstrap& bootstrap, const Config& config, const Connections& connections,
                       Transport* far) {
  WaitPolicy policy;
  policy.timeout = config.timeout;
  policy.warn_after = config.warn_after;
  policy.host_progress = bootstrap.host_progress;
  policy.clock = bootstrap.clock;
  if (policy.host_progress && !policy.clock)
    policy.polls_between_looks = polls_between_looks(policy.host_progress);
  // Shared memory tells of nothing: who shares a node has to look.
  const TopologyView& t = connections.topology;
  const bool alone = t.members(t.node_of(bootstrap.rank)).size() == 1;
  if (far != nullptr && alone && far->wake_descriptor() >= 0) policy.sleeps_on = far;
  policy.spins = config.spin >= 0
                     ? SpinBudget(config.spin, config.spin)
                     : default_spins(connections.own_core, far != nullptr, policy.sleeps_on != nullptr);
  return policy;
}

// Where the ranks cannot tell each other anything any more no other memory and no other network helps: that
// is what failed, and not whatever was being tried.
Result<std::unique_ptr<Connections>> connect(const Bootstrap& bootstrap, const Config& config) {
  Status parted;
  Bootstrap meeting = bootstrap;
  meeting.allgather = [&](const void* mine, void* all, std::size_t bytes) {
    if (parted.ok()) parted = bootstrap.allgather(mine, all, bytes);
    return parted;
  };
  Result<std::unique_ptr<Connections>> made = Setup(meeting, config).run();
  return parted.ok() ? std::move(made) : Result<std::unique_ptr<Connections>>(parted);
}

}  // namespace heddle
