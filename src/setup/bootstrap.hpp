// How the ranks of a new communicator find each other: an allgather, and what the caller knows of them.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "base/cost.hpp"
#include "base/host_identity.hpp"
#include "base/status.hpp"
#include "base/text.hpp"
#include "device/device_ways.hpp"
#include "heddle/heddle.h"
#include "setup/node_plan.hpp"
#include "setup/tcp_star.hpp"
#include "setup/usable_cores.hpp"
#include "transports/shm/shared_heap.hpp"

namespace heddle {

// What the communicators of one process may share. Any thread.
class ProcessState {
 public:
  SharedHeap heap;
  std::atomic<std::uint32_t> small_stores{0};  // SmallStores as measured, packed; 0: not yet
  std::atomic<bool> single_copy{false};        // of bcasts, measured as the faster way

  KnownWays device_ways;  // of buffers on GPUs

  // What tells a measurement by itself from one that other programs took part in; a test has its own.
  std::function<double()> core_seconds = thread_core_seconds;
  std::function<double()> queued_seconds = thread_queued_seconds;

  // host_identity() and cgroup_quota_cores(), which read a dozen files, as they were at first.
  HostIdentity identity() {
    const std::lock_guard lock(mutex_);
    if (!identity_) identity_ = host_identity();
    return *identity_;
  }
  int quota() {
    const std::lock_guard lock(mutex_);
    if (!quota_) quota_ = cgroup_quota_cores();
    return *quota_;
  }

  // plan_node() for the machine under this process, which is looked at once. Where that fails: of nothing
  // known.
  NodePlan plan_node(const std::vector<CoreClaim>& members) {
    const std::lock_guard lock(mutex_);
    if (!machine_) {
      Result<Machine> found = discover_machine();
      machine_ = found.ok() ? std::move(found).value() : Machine{};
    }
    return heddle::plan_node(*machine_, members);
  }

  // describe_placement() on that machine; "" where it is not known.
  std::string placement(const std::vector<CoreClaim>& members) const {
    const std::lock_guard lock(mutex_);
    return machine_ ? describe_placement(*machine_, members) : std::string();
  }

  // The machine, in words.
  std::string machine() const {
    const std::lock_guard lock(mutex_);
    return machine_ ? describe(*machine_) : "unknown machine";
  }

  // That ranks of the job take turns on the cores of this claim, as a communicator has found: some of them
  // may not be in the next one, and want the cores all the same.
  void found_turns_on(const CoreClaim& claim) {
    const std::lock_guard lock(mutex_);
    taken_in_turns_ = claim;
  }
  bool takes_turns_on(const CoreClaim& claim) const {
    const std::lock_guard lock(mutex_);
    return taken_in_turns_ && std::equal(std::begin(claim.mask), std::end(claim.mask), taken_in_turns_->mask);
  }

  // Which algorithms serve which sizes within a node (write_tuning()'s text), by machine and placement; "":
  // not known.
  std::string choices(const std::string& key) const {
    const std::lock_guard lock(mutex_);
    const auto found = choices_.find(key);
    return found != choices_.end() ? found->second : std::string();
  }
  void keep_choices(const std::string& key, std::string text) {
    const std::lock_guard lock(mutex_);
    choices_[key] = std::move(text);
  }

  // Between nodes, as measured; all 0: not yet.
  MessageCost message_cost() const {
    const std::lock_guard lock(mutex_);
    return message_cost_;
  }
  void learn(const MessageCost& message_cost) {
    const std::lock_guard lock(mutex_);
    message_cost_ = message_cost;
  }

  // Of the ways between nodes the one to use; "": not known yet.
  std::string internode() const {
    const std::lock_guard lock(mutex_);
    return internode_;
  }
  void use_internode(std::string name) {
    const std::lock_guard lock(mutex_);
    internode_ = std::move(name);
  }

  // Those by which ranks have not reached each other, with commas: nobody waits for them again.
  std::string failed_networks() const {
    const std::lock_guard lock(mutex_);
    return failed_networks_;
  }
  void note_failed_network(const std::string& name) {
    const std::lock_guard lock(mutex_);
    if (internode_ == name) internode_.clear();
    const std::vector<std::string_view> known = split_list(failed_networks_);
    if (std::find(known.begin(), known.end(), name) != known.end()) return;
    failed_networks_ += (failed_networks_.empty() ? "" : ",") + name;
  }

  // Whether a warning about a wait may be said. One keeps others back for a while: where one rank has
  // something else to do in each step of a job, all others would say nothing else.
  static constexpr std::chrono::minutes kQuietAfterWarning{5};
  bool may_warn(TimePoint time) const {
    const std::lock_guard lock(mutex_);
    return !warned_ || time - *warned_ >= kQuietAfterWarning;
  }
  void has_warned(TimePoint time) {
    const std::lock_guard lock(mutex_);
    warned_ = time;
  }

 private:
  mutable std::mutex mutex_;
  MessageCost message_cost_;
  std::optional<TimePoint> warned_;
  std::string internode_;
  std::string failed_networks_;
  std::optional<Machine> machine_;
  std::optional<HostIdentity> identity_;
  std::optional<int> quota_;
  std::optional<CoreClaim> taken_in_turns_;
  std::map<std::string, std::string> choices_;
};

// Of one communicator. Set-up keeps some hundred bytes for each rank: a size that was never set should be
// told of, not run out of memory.
inline constexpr int kMostRanks = 1 << 24;

struct Bootstrap {
  int rank = 0;
  int size = 1;
  // Collective and blocking; gathers `bytes` bytes of every rank into `all` in rank order. Used only during
  // set-up.
  std::function<Status(const void* mine, void* all, std::size_t bytes)> allgather;
  // Makes the lender's point-to-point messages (MPI's); null where there are none. Collective: set-up calls
  // it on every rank or on none, because what backs it may be scarce (MPI's context ids). The functions and
  // the context outlive the communicator.
  std::function<Result<heddle_p2p>()> make_p2p;
  // Moves the lender's own traffic; called while a rank waits inside heddle, also in collectives, for as long
  // as the communicator lives. May be null.
  std::function<void()> host_progress;
  // What waits, deadlines and measurements between nodes go by. Ranks need not agree on it.
  Clock clock;
  // On that clock copies and folds take no time, as in a simulator that times messages alone. The same on all
  // ranks.
  bool free_work = false;
  // Ranks with equal values share memory, as far as the lender knows (MPI_COMM_TYPE_SHARED). Without one,
  // ranks with the same host name and boot identity do.
  std::optional<std::uint64_t> node;
  // Whether there may be requests, which move while the caller computes where the network lets them. The same
  // on all ranks.
  bool has_requests = true;
  // What several communicators of this process share; null: this one has its own.
  std::shared_ptr<ProcessState> process;
};

// RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT (torchrun's names) from `environment` (strings "NAME=VALUE"); a
// `master_port` other than 0 (HEDDLE_MASTER_PORT) takes MASTER_PORT's place. `invalid_argument` names the
// variable. With WORLD_SIZE=1 there is nobody to meet, and address and port may be missing. The job's name is
// the launcher's, where it gives one.
Result<Rendezvous> rendezvous_from(const std::vector<std::string>& environment, int master_port);

// Collective over TCP; the returned value owns its connections (shared by the function). Each wait ends after
// `wait.timeout` (0: 60 s) with a status that names the missing ranks.
Result<Bootstrap> bootstrap_over_tcp(const Rendezvous& where, StartWait wait);

// Both, from this process's environment.
Result<Bootstrap> bootstrap_from_env(const Config& config);

}  // namespace heddle
