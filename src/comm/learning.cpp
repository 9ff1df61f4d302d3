// What a communicator finds out about its machine when it is made.
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "comm/choice_cache.hpp"
#include "comm/communicator_impl.hpp"
#include "comm/measured_choices.hpp"
#include "comm/message_costs.hpp"
#include "engine/kernels/kernels.hpp"

namespace heddle {
namespace {

// Raised whenever choices measured by another build could not be trusted.
constexpr int kChoiceVersion = 1;

}  // namespace

Status CommunicatorImpl::measure() {
  const auto use = [&](const SmallStores& stores) {
    for (const std::unique_ptr<ShmTeam>& each : connections_->teams) {
      if (each) each->use(stores);
    }
  };
  std::atomic<std::uint32_t>& known = connections_->process->small_stores;
  if (connections_->measures) {
    const Result<SmallStores> found = measure_small_stores(
        {use, [&](TeamOp& op) { return run_on_team(op); }, fold_kernel(DType::u8, Op::bor)});
    if (!found.ok()) return found.status();
    known.store(pack(found.value()), std::memory_order_relaxed);
  } else if (const std::uint32_t packed = known.load(std::memory_order_relaxed); packed != 0) {
    use(unpack_small_stores(packed));
  }
  return {};
}

Status CommunicatorImpl::learn_message_cost(const Bootstrap& bootstrap) {
  const TopologyView& t = connections_->topology;
  const int first = t.members(0).front();
  const int second = t.members(1).front();
  if (connections_->message_cost == LinearCost{}) {
    LinearCost mine;
    Status status;
    if (rank_ == first || rank_ == second) {
      const auto exchange = [&](bool sends, void* data, std::size_t bytes) {
        return transfer(sends, data, bytes, rank_ == first ? second : first);
      };
      const Result<MessageTimes> times = time_messages(exchange, rank_ == first);
      if (times.ok()) mine = fit_message_cost(times.value());
      status = times.status();
    }
    HEDDLE_TRY(agree(bootstrap, status));
    std::vector<LinearCost> all(static_cast<std::size_t>(size_));
    HEDDLE_TRY(bootstrap.allgather(&mine, all.data(), sizeof mine));
    connections_->message_cost = all[static_cast<std::size_t>(first)];
  }
  connections_->process->learn(connections_->message_cost);
  selector_.use(connections_->cost_model());
  return {};
}

// ---- Algorithms within the node

bool CommunicatorImpl::can_try_choices() const {
  return size_ > 1 && topology().nodes() == 1 && connections_->own_core;
}

// Apart is what must not share measurements: another machine, other ranks on it, other settings of what moves data.
std::string CommunicatorImpl::choice_key(const Config& config) const {
  const TopologyView& t = topology();
  std::string key = fmt::format("version {}, {}, {} ranks on {} cores{}, slots of {}, {}, spin {}",
                                kChoiceVersion, connections_->process->machine(), size_, connections_->cores,
                                connections_->own_core ? " of their own" : "",
                                connections_->geometry.slot_bytes, config.transports, config.spin);
  for (std::int32_t rank = 0; rank < size_ && t.has_domains(); ++rank)
    key += fmt::format("{}{}", rank == 0 ? ", domains " : ",", t.team_of(TeamKind::domain, rank));
  return key;
}

// Rank 0's text on every rank.
Status CommunicatorImpl::share(std::string& text) {
  const auto bcast = [&](void* data, std::size_t bytes) {
    TeamOp op;
    op.verb = TeamVerb::bcast;
    op.in = op.out = static_cast<std::byte*>(data);
    op.count = bytes;
    return run_on_team(op);
  };
  std::uint64_t length = text.size();
  HEDDLE_TRY(bcast(&length, sizeof length));
  text.resize(length);
  return length == 0 ? Status() : bcast(text.data(), length);
}

Result<double> CommunicatorImpl::time_choice(Collective collective, const Choice& choice, std::size_t bytes,
                                             int times, std::vector<float>& buffer) {
  const std::size_t count = bytes / sizeof(float);
  const FoldFn fold = folds_.of(DType::f32, Op::sum, count);
  const Job job = collective == Collective::bcast
                      ? Job{collective, buffer.data(), buffer.data(), bytes, 1, nullptr, 0}
                      : Job{collective, buffer.data(), buffer.data() + count, count, sizeof(float), fold, 0};
  using Clock = std::chrono::steady_clock;
  Clock::time_point start;
  // The first is not timed: in it the ranks come together.
  for (int i = 0; i <= times; ++i) {
    if (i == 1) start = Clock::now();
    HEDDLE_TRY(run_choice(job, choice));
  }
  double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  TeamOp slowest;
  slowest.in = slowest.out = reinterpret_cast<std::byte*>(&seconds);
  slowest.count = 1;
  slowest.element_bytes = sizeof seconds;
  slowest.fold = fold_kernel(DType::f64, Op::max);
  HEDDLE_TRY(run_on_team(slowest));
  return seconds;
}

Result<MeasuredChoices> CommunicatorImpl::try_choices(const std::vector<Collective>& collectives) {
  std::vector<float> buffer;
  ChoiceTrial trial;
  trial.candidates = [&](Collective collective, std::size_t bytes) {
    return selector_.candidates(collective, bytes, false);
  };
  trial.time = [&](Collective collective, const Choice& choice, std::size_t bytes, int times) {
    buffer.resize(std::max(buffer.size(), 2 * bytes / sizeof(float)));
    return time_choice(collective, choice, bytes, times, buffer);
  };
  Result<MeasuredChoices> measured = measure_choices(trial, size_, collectives);
  executions_.clear();  // of all that lost as well
  return measured;
}

// What rank 0 knows from before, as text; empty: nothing.
std::string CommunicatorImpl::known_choices(const ChoiceCache& cache, const std::string& key) {
  std::string known = connections_->process->choices(key);
  if (!known.empty()) return known;
  const auto kept = cache.load(key);
  if (!kept.ok()) {
    log_.warn(fmt::format("{}; it is ignored, and measured again", kept.status().message()));
  } else if (kept.value()) {
    known = write_tuning(*kept.value(), key);
    connections_->process->keep_choices(key, known);
    learnt_ = fmt::format(", algorithms as measured before ({})", cache.path_of(key));
  }
  return known;
}

Status CommunicatorImpl::learn_choices(const Config& config) {
  std::vector<Collective> collectives;
  if (preferences_.forced_allreduce == nullptr) collectives.push_back(Collective::allreduce);
  if (preferences_.forced_bcast == nullptr) collectives.push_back(Collective::bcast);
  if (collectives.size() < 2) return {};  // such a job measures something itself

  const ChoiceCache cache(config.cache_folder.empty() ? default_cache_folder() : config.cache_folder);
  const std::string key = rank_ == 0 ? choice_key(config) : std::string();
  std::string text = rank_ == 0 ? known_choices(cache, key) : std::string();
  HEDDLE_TRY(share(text));
  if (!text.empty()) {
    Result<std::vector<TuningRule>> rules = parse_tuning(text);
    if (rules.ok()) selector_.use(std::move(rules).value());
    return rules.status();
  }
  const auto start = std::chrono::steady_clock::now();
  Result<MeasuredChoices> measured = try_choices(collectives);
  if (!measured.ok()) return measured.status();
  if (rank_ == 0) {
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    connections_->process->keep_choices(key, write_tuning(measured->rules, key));
    const Status kept = cache.save(key, measured->rules);
    learnt_ = fmt::format(", algorithms{} measured in {:.0f} ms, {}",
                          measured->complete ? "" : " for all but the largest sizes", took.count(),
                          kept.ok() ? "kept in " + cache.path_of(key) : "not kept: " + kept.message());
  }
  selector_.use(std::move(measured->rules));
  return {};
}

}  // namespace heddle
