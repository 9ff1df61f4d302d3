#include "comm/learning.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <limits>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/clock.hpp"
#include "comm/communicator_impl.hpp"
#include "comm/message_costs.hpp"
#include "comm/streamed_results.hpp"
#include "engine/kernels/kernels.hpp"

namespace heddle {
namespace {

using SteadyClock = std::chrono::steady_clock;

// Raised whenever choices measured by another build could not be trusted.
constexpr int kChoiceVersion = 6;

// Reads all of it, at the speed of the memory.
std::uint32_t pass_over(const float* data, std::size_t count) {
  std::uint32_t mixture = 0;
  for (std::size_t i = 0; i < count; ++i)
    mixture ^= std::bit_cast<std::uint32_t>(data[i]);
  return mixture;
}

// Beyond, the buffers for measuring streaming would take more memory than it is worth.
constexpr int kMostForStreaming = 8;

// For later jobs, which would go by what is wrong for good. In words; `without_core` is the largest share of
// any rank.
std::string keep(const ChoiceCache& cache, const std::string& key, const Tuning& tuning,
                 double without_core) {
  if (without_core > kWithoutCore)
    return fmt::format("not kept: a rank was without its core for {:.0f}% of that",
                       100 * std::min(without_core, 1.0));
  const Status kept = cache.save(key, tuning);
  if (!kept.ok()) return "not kept: " + kept.message();
  return "kept in " + cache.path_of(key) + (tuning.found_once ? " for the next job to confirm" : "");
}

}  // namespace

Learning::Learning(CommunicatorImpl& comm, const Bootstrap& bootstrap, const Config& config)
    : comm_(comm), connections_(*comm.connections_), bootstrap_(bootstrap), config_(config), trials_(comm) {}

Status Learning::run() {
  HEDDLE_TRY(agree(bootstrap_, stores()));
  if (comm_.topology().nodes() > 1) HEDDLE_TRY(messages());
  return config_.measure && can_try_choices() ? agree(bootstrap_, choices()) : Status();
}

// All ranks are here, and none computes: who does not get through by now never will, with or without a
// deadline of the user's. Nor need the communicators that come later wait as long again.
Status Learning::messages() {
  constexpr std::chrono::seconds kGetThroughWithin{30};
  std::chrono::milliseconds& timeout = comm_.policy_.timeout;
  if (timeout.count() == 0) timeout = kGetThroughWithin;
  Status agreed = message_cost();
  timeout = config_.timeout;
  if (agreed.code() != Code::timeout && agreed.code() != Code::peer_failed) return agreed;
  const std::string& name = connections_.internode.name;
  connections_.process->note_failed_network(name);
  if (bootstrap_.process == nullptr) return agreed;
  return Status(agreed.code(), agreed.message() + "; these ranks do not try " + name + " again");
}

// What a few ranks add to messages by sending at the same time says little of what many do.
bool Learning::outgrown() const {
  constexpr std::int32_t kFew = 2;  // times fewer, and still alike
  const MessageCost& cost = connections_.message_cost;
  if (cost.nodes == 0) return false;
  return connections_.topology.nodes() > kFew * cost.nodes ||
         connections_.topology.most_members() > kFew * cost.ranks_of_node;
}

Status Learning::message_cost() {
  const TopologyView& t = connections_.topology;
  const int first = t.members(0).front();
  // Far from the first one, where places have an order: neighbours' messages are cheaper than most.
  const int second = t.members(t.nodes() / 2).front();
  const bool unknown = connections_.message_cost == MessageCost{};
  const bool measures = unknown || outgrown();
  const auto start = SteadyClock::now();
  const double queued = connections_.process->queued_seconds();
  if (unknown) {
    MessageCost mine;
    Status status;
    if (comm_.rank_ == first || comm_.rank_ == second) {
      const auto exchange = [&](bool sends, void* data, std::size_t bytes) {
        return comm_.transfer(sends, data, bytes, comm_.rank_ == first ? second : first);
      };
      const Result<MessageTimes> times = time_messages(exchange, comm_.rank_ == first, bootstrap_.clock);
      if (times.ok()) mine = fit_message_cost(times.value());
      status = times.status();
    } else if (!bootstrap_.clock) {
      // The others wait by the bootstrap's means, which may be an MPI that never lets go of its core: not
      // while small messages are timed.
      constexpr std::chrono::milliseconds kSmallMessagesTake{5};
      std::this_thread::sleep_for(kSmallMessagesTake);
    }
    HEDDLE_TRY(agree(bootstrap_, status));
    std::vector<MessageCost> all(static_cast<std::size_t>(comm_.size_));
    HEDDLE_TRY(bootstrap_.allgather(&mine, all.data(), sizeof mine));
    connections_.message_cost = all[static_cast<std::size_t>(first)];
  }
  if (measures) {
    connections_.message_cost.least_ns = connections_.message_cost.crossing = 0;
    comm_.selector_.use(connections_.cost_model());
    HEDDLE_TRY(agree(bootstrap_, crowding()));
    // The most of each, so that a communicator of many nodes and one of many ranks on a node do not make each
    // other measure again and again.
    MessageCost& cost = connections_.message_cost;
    cost.nodes = std::max(cost.nodes, t.nodes());
    cost.ranks_of_node = std::max(cost.ranks_of_node, t.most_members());
  }
  if (t.nodes() > 2 && connections_.message_cost.crossing == 0) HEDDLE_TRY(agree(bootstrap_, crossing()));
  connections_.process->learn(connections_.message_cost);
  comm_.selector_.use(connections_.cost_model());
  // What measuring itself needed was chosen by less than is known now.
  comm_.plans_.choose_again();
  if (!measures || bootstrap_.clock) return {};
  const Result<double> without_core =
      trials_.slowest((connections_.process->queued_seconds() - queued) / seconds_since(start));
  HEDDLE_TRY(agree(bootstrap_, without_core.status()));
  // Where ranks take turns on cores each is without one for a while.
  if (without_core.value() > kWithoutCore && connections_.own_core)
    comm_.learnt_ = fmt::format(
        ", messages measured while a rank was without its core for {:.0f}% of that: the next run may find "
        "others",
        100 * std::min(without_core.value(), 1.0));
  return {};
}

// Two ranks alone have shown what a message takes. Where hosts share cores (containers, virtual machines) or
// wires, it takes several times as long while all ranks send, and few messages count more than few bytes: a
// small collective that all of them run tells.
Status Learning::crowding() {
  constexpr std::size_t kBytes = MessageTimes::kSmall;
  // The least counts: ranks have to find their pace, which took some dozens of calls where four shared two
  // cores. Simulated time repeats itself.
  const int most_calls = comm_.policy_.clock ? 1 : 100;
  constexpr double kLongEnough = 0.1;  // seconds
  constexpr double kNoMoreThanNoise = 1.25;
  const Choice choice = comm_.selector_.cheapest(Collective::allreduce, kBytes, false);
  if (choice.algorithm == nullptr) return {};
  const double price_ns = comm_.selector_.price_of(choice, kBytes);
  double least = std::numeric_limits<double>::infinity();
  double spent = 0;
  for (int call = 0; call < most_calls && spent < kLongEnough; ++call) {
    const Result<double> seconds = trials_.in_a_row(Collective::allreduce, choice, kBytes, 1);
    if (!seconds.ok()) return seconds.status();
    least = std::min(least, 1e9 * seconds.value() / price_ns);
    if (least <= kNoMoreThanNoise) return {};
    spent += seconds.value();
  }
  connections_.message_cost.least_ns = least * connections_.message_cost.fixed_ns;
  return {};
}

// Two nodes alone have not shown what the middle of the network bears: all nodes at once do.
Status Learning::crossing() {
  constexpr double kNotWorthWaitingNs = 2e6;
  MessageCost& cost = connections_.message_cost;
  const double alone_ns = cost.fixed_ns + cost.per_byte_ns * static_cast<double>(InternodeTimes::kLarge);
  if (alone_ns > kNotWorthWaitingNs) return {};
  const Result<double> all_ns = trials_.slowest(
      time_crossing({connections_.internode.transport.get(), comm_.policy_}, comm_.topology(), comm_.rank_));
  if (!all_ns.ok()) return all_ns.status();
  const auto distances =
      static_cast<int>(std::bit_width(static_cast<std::uint32_t>(comm_.topology().nodes() - 1)));
  cost.crossing = all_ns.value() / (distances * alone_ns);
  return {};
}

// ---- Algorithms within the node

// Where ranks take turns on cores, what a trial takes says little of the algorithm (tried: one in twenty
// choices was wrong by a factor of two to eight).
bool Learning::can_try_choices() const {
  return comm_.size_ > 1 && comm_.topology().nodes() == 1 && connections_.own_core;
}

// Apart is what must not share measurements: another machine, other ranks on it, other settings of what moves
// data.
std::string Learning::choice_key() const {
  const TopologyView& t = comm_.topology();
  std::string key = fmt::format("version {}, {}, {} ranks on {} cores{}, slots of {}, {}, spin {}",
                                kChoiceVersion, connections_.process->machine(), comm_.size_,
                                connections_.cores, connections_.own_core ? " of their own" : "",
                                connections_.geometry.slot_bytes, config_.transports, config_.spin);
  key += ", placed " + connections_.process->placement(connections_.claims);
  // Which way is faster is tried by each process anew, and decides whether the team's bcast is the fastest.
  if (comm_.single_copy_) key += ", bcasts copied once";
  if (config_.reproducible) key += ", reproducible";
  for (std::int32_t rank = 0; rank < comm_.size_ && t.has_domains(); ++rank)
    key += fmt::format("{}{}", rank == 0 ? ", domains " : ",", t.team_of(TeamKind::domain, rank));
  return key;
}

// Rank 0's text on every rank.
Status Learning::share(std::string& text) {
  const auto bcast = [&](void* data, std::size_t bytes) {
    TeamOp op;
    op.verb = TeamVerb::bcast;
    op.in = op.out = static_cast<std::byte*>(data);
    op.count = bytes;
    return comm_.run_on_team(op);
  };
  std::uint64_t length = text.size();
  HEDDLE_TRY(bcast(&length, sizeof length));
  text.resize(length);
  return length == 0 ? Status() : bcast(text.data(), length);
}

SearchPlan Learning::plan() const {
  SearchPlan plan;
  plan.ranks = comm_.size_;
  plan.collectives = {Collective::allreduce, Collective::bcast};
  return plan;
}

Result<MeasuredChoices> Learning::try_choices() {
  ChoiceTrial trial;
  trial.candidates = [&](Collective collective, std::size_t bytes) {
    return comm_.selector_.candidates(collective, bytes, false);
  };
  trial.time = [&](Collective collective, const Choice& choice, std::size_t bytes,
                   int times) -> Result<Timing> {
    const Result<double> seconds = trials_.in_a_row(collective, choice, bytes, times);
    if (!seconds.ok()) return seconds.status();
    // The same on every rank, other than what a clock says. One more than `times` for coming together.
    return Timing{seconds.value(), seconds.value() * (times + 1) / times};
  };
  Result<MeasuredChoices> measured = measure_choices(trial, plan());
  trials_.forget();
  return measured;
}

// On buffers that are not in a core's own cache: as many as fill 16 MiB, in turn.
Result<std::size_t> Learning::try_streaming() {
  constexpr std::size_t kPool = (std::size_t{16} << 20) / sizeof(float);
  std::vector<float> in(kPool);
  std::vector<float> out(kPool);
  std::size_t next = 0;
  StreamingTrial trial;
  trial.time = [&](std::size_t bytes, bool streamed, bool reads) -> Result<double> {
    const std::size_t count = bytes / sizeof(float);
    if (next + count > kPool) next = 0;
    const Job job{Collective::allreduce,
                  in.data() + next,
                  out.data() + next,
                  count,
                  sizeof(float),
                  comm_.folds_.either(DType::f32, Op::sum, streamed),
                  0};
    const auto start = SteadyClock::now();
    TeamOp op = CommunicatorImpl::team_op(job);
    HEDDLE_TRY(comm_.run_on_team(op));
    [[maybe_unused]] volatile std::uint32_t seen = 0;
    if (reads) seen = pass_over(out.data() + next, count);
    next += count;
    return trials_.slowest(seconds_since(start));
  };
  return measure_streaming(trial);
}

// What rank 0 knows from before, as text; empty: nothing.
std::string Learning::known_choices(const ChoiceCache& cache, const std::string& key) {
  std::string known = connections_.process->choices(key);
  if (!known.empty()) return known;
  const auto kept = cache.load(key);
  if (!kept.ok()) {
    comm_.log_.warn(fmt::format("{}; it is ignored, and measured again", kept.status().message()));
  } else if (kept.value()) {
    known = write_tuning(*kept.value(), key);
    if (kept.value()->found_once) return known;
    connections_.process->keep_choices(key, known);
    comm_.learnt_ = fmt::format(", algorithms as measured before ({})", cache.path_of(key));
  }
  return known;
}

Status Learning::choices() {
  // A job that forces an algorithm measures something itself.
  if (comm_.preferences_.forced_for(Collective::allreduce) != nullptr ||
      comm_.preferences_.forced_for(Collective::bcast) != nullptr)
    return {};
  const ChoiceCache cache(config_.cache_folder.empty() ? default_cache_folder() : config_.cache_folder);
  const std::string key = comm_.rank_ == 0 ? choice_key() : std::string();
  std::string text = comm_.rank_ == 0 ? known_choices(cache, key) : std::string();
  HEDDLE_TRY(share(text));
  if (text.empty()) return measure(cache, key, nullptr);
  Result<Tuning> tuning = parse_tuning(text);
  if (!tuning.ok()) return tuning.status();
  if (tuning.value().found_once) return measure(cache, key, &tuning.value());
  use(std::move(tuning).value());
  return {};
}

// Where another algorithm wins than the one that would serve without, the next job measures once more, and
// later ones go by what both have found. `earlier`: what the first of these two has; may be null.
Status Learning::measure(const ChoiceCache& cache, const std::string& key, const Tuning* earlier) {
  const auto start = SteadyClock::now();
  const double core_start = connections_.process->core_seconds();
  Result<MeasuredChoices> measured = try_choices();
  if (!measured.ok()) return measured.status();
  if (earlier != nullptr) confirm(measured.value(), plan(), *earlier);
  const bool once = earlier == nullptr && anything_won(measured.value());
  // Of the rank that was without its core for longest, as a share.
  const auto missed = [&] {
    return trials_.slowest(1 - (connections_.process->core_seconds() - core_start) / seconds_since(start));
  };
  Result<double> without_core = missed();
  // Each of its allreduces would wait for somebody's time slice.
  if (comm_.size_ <= kMostForStreaming && without_core.ok() && without_core.value() <= kWithoutCore) {
    const Result<std::size_t> from = try_streaming();
    if (!from.ok()) return from.status();
    measured->tuning.streamed_from = from.value();
    without_core = missed();
  }
  if (!without_core.ok()) return without_core.status();
  if (comm_.rank_ == 0) {
    connections_.process->keep_choices(key, write_tuning(measured->tuning, key));
    Tuning kept = measured->tuning;
    kept.found_once = once;
    comm_.learnt_ = fmt::format(", algorithms{} measured in {:.0f} ms, {}",
                                measured->complete ? "" : " for all but the largest sizes",
                                1e3 * seconds_since(start), keep(cache, key, kept, without_core.value()));
  }
  use(std::move(measured->tuning));
  return {};
}

void Learning::use(Tuning measured) {
  // What the user's tuning file says counts more.
  if (measured.streamed_from && !comm_.preferences_.tuning.streamed_from)
    comm_.folds_.stream_from(*measured.streamed_from);
  comm_.selector_.use(std::move(measured.rules));
}

}  // namespace heddle
