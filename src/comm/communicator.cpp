#include "comm/communicator_impl.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "comm/complete.hpp"
#include "comm/learning.hpp"
#include "engine/kernels/kernels.hpp"

namespace heddle {
CommunicatorImpl::CommunicatorImpl(const Bootstrap& bootstrap, const Config& config,
                                   std::unique_ptr<Connections> connections)
    : rank_(bootstrap.rank),
      size_(bootstrap.size),
      config_(config),
      log_(config.log_level, bootstrap.rank),
      policy_(wait_policy(bootstrap, config, *connections, connections->internode.transport.get())),
      preferences_(std::move(connections->preferences)),
      connections_(std::move(connections)),
      watch_(rank_, *connections_, policy_, log_, config.check != CheckSetting::off),
      selector_(connections_->topology, connections_->cost_model(), {true, true}, preferences_),
      plans_(connections_->topology, rank_, selector_, log_),
      local_gpu_(config.cuda && config.device_bytes > 0, log_) {
  const TopologyView& t = connections_->topology;
  // A forced algorithm or a rule still decides; only an unforced choice may skip the selection.
  team_ = t.nodes() == 1 ? connections_->ports.teams[static_cast<std::size_t>(TeamKind::node)] : nullptr;
  if (team_ == nullptr) bcasts_meet_ = UINT64_MAX;
  if (size_ == 1 || (team_ != nullptr && size_ <= gpu::kMostRanks)) {
    const DeviceLimits limits{config.cuda ? config.device_bytes : 0,
                              config.exchange_bytes,
                              {config.timeout, config.shared_context},
                              config.measure,
                              &connections_->process->device_ways};
    device_path_ = std::make_unique<DevicePath>(node_meeting_, limits, log_);
  }
  if (t.nodes() > 1 && t.most_members() <= gpu::kMostRanks) {
    nodes_network_ = std::make_unique<NodesNetwork>(*this);
    nodes_path_ = std::make_unique<NodesPath>(node_meeting_, *nodes_network_,
                                              config.cuda ? config.device_bytes : 0, config.gpu_direct, log_);
  }
  if (!device_path_) {
    std::unique_ptr<StreamShares> shares;
    if (nodes_network_ && t.most_members() > 1)
      shares = std::make_unique<StreamShares>(node_meeting_, nodes_network_->lanes(),
                                              config.cuda ? config.device_bytes : 0, log_);
    stream_relay_ = std::make_unique<StreamRelay>(
        *this, [this] { return twin(); }, log_, std::move(shares), config.shared_context);
  }
  if (preferences_.tuning.streamed_from) folds_.stream_from(*preferences_.tuning.streamed_from);
}

// ---- Blocking

// Message tags come back after kSequences collectives: a request that still uses them is waited for first.
Status CommunicatorImpl::free_sequence() {
  while (!active_.empty()) {
    const auto older = [](const MovingRequest* a, const MovingRequest* b) {
      return a->started() < b->started();
    };
    const MovingRequest* oldest = *std::min_element(active_.begin(), active_.end(), older);
    if (sequence_ - oldest->started() < kSequences) return {};
    HEDDLE_TRY(wait_for(*oldest));
  }
  return {};
}

Binding CommunicatorImpl::bind(const Job& job) const {
  Binding binding;
  binding.input = static_cast<const std::byte*>(job.in);
  binding.data = static_cast<std::byte*>(job.out);
  binding.count =
      job.collective == Collective::allgather ? job.count * static_cast<std::size_t>(size_) : job.count;
  binding.element_bytes = job.element_bytes;
  binding.fold = job.fold;
  binding.kind = job.kind;
  return binding;
}

TeamOp CommunicatorImpl::team_op(const Job& job) {
  TeamOp op;
  op.verb = job.collective == Collective::bcast       ? TeamVerb::bcast
            : job.collective == Collective::reduce    ? TeamVerb::reduce
            : job.collective == Collective::allgather ? TeamVerb::allgather
                                                      : TeamVerb::allreduce;
  op.in = static_cast<const std::byte*>(job.in);
  op.out = static_cast<std::byte*>(job.out);
  op.count = job.count;
  op.element_bytes = job.element_bytes;
  op.fold = job.fold;
  op.kind = job.kind;
  op.root = job.root;
  return op;
}

Status CommunicatorImpl::run_team(const Job& job, PackedView* view) {
  if (!turns_.empty()) [[unlikely]]
    HEDDLE_TRY(finish_team_requests());
  TeamOp op = team_op(job);
  op.view = view;
  return run_on(*team_, op);
}

Status CommunicatorImpl::run_on(Team& team, TeamOp& op) {
  team.start(op);
  // Inline, as most of a small call, however many callers there are.
  const auto poll = [&](bool* done) __attribute__((always_inline))->Status {
    *done = team.poll(op);
    if (*done && active_.empty()) return {};
    if (op.view != nullptr && !op.view->status().ok()) [[unlikely]]
      return op.view->status();
    if (&team != team_ && !*done) [[unlikely]]
      HEDDLE_TRY(move_unsettled(connections_->ports));
    return active_.empty() ? Status() : move_requests();
  };
  const auto look = [&](Patience& patience) -> Status {
    HEDDLE_TRY(compare_waiting(call_of(op)));
    return watch_.inspect(
        {Waiting::On::member, team.missing(op), TeamKind::node, team.clash(op), team.passed(op)}, patience);
  };
  Status status = wait_until_done(policy_, poll, look);
  return status.ok() ? status : fail(std::move(status));
}

namespace {

// Takes a call out of the count unless it begins: the others, who wait for this rank, count it once, however
// often this one tries.
class TakenBack {
 public:
  explicit TakenBack(std::uint64_t* calls) : calls_(calls) {}
  ~TakenBack() {
    if (calls_ != nullptr) --*calls_;
  }
  TakenBack(const TakenBack&) = delete;
  TakenBack& operator=(const TakenBack&) = delete;
  void has_begun() { calls_ = nullptr; }

 private:
  std::uint64_t* calls_;
};

}  // namespace

Status CommunicatorImpl::run_schedule(const Job& job, const Choice& choice, Counted counted) {
  TakenBack call(counted == Counted::yes ? &calls_ : nullptr);
  // A team takes one operation at a time.
  if (!turns_.empty() && choice.algorithm->needs_team) HEDDLE_TRY(finish_team_requests());
  const std::shared_ptr<const Schedule> schedule = plans_.schedule(choice, job.root);
  const std::unique_ptr<Execution>& execution = executions_.get(
      schedule.get(), [&] { return std::make_unique<Execution>(schedule, connections_->ports, &scratch_); });
  HEDDLE_TRY(free_sequence());
  Binding binding = bind(job);
  binding.sequence = upcoming_sequence();
  HEDDLE_TRY(execution->start(binding));
  place_own(job);
  // Not where memory was missing: nothing was sent then, and another call may take its place.
  (void)next_sequence();
  call.has_begun();
  return complete(*execution, call_of(team_op(job)));
}

Status CommunicatorImpl::run(const Job& job, Counted counted) {
  const std::size_t bytes = job.count * job.element_bytes;
  const std::uint64_t bit = std::uint64_t{1} << size_class(bytes);
  if ((by_team_[static_cast<std::size_t>(job.collective)] & bit) == 0) [[unlikely]] {
    if (!broken_.ok()) return failed_before();
    const Result<const Selection*> selection = plans_.selection(job.collective, bytes, false);
    if (!selection.ok()) return selection.status();
    // A schedule of one team verb needs no executor.
    const Algorithm& algorithm = *selection.value()->choice.algorithm;
    if (nodes_path_ != nullptr) return run_over_nodes(job, selection.value()->choice, counted);
    if (team_ == nullptr || algorithm.needs_messages || algorithm.needs_domains)
      return run_schedule(job, selection.value()->choice, counted);
    by_team_[static_cast<std::size_t>(job.collective)] |= bit;
  }
  return run_team(job);
}

// GPUs may serve such calls later on, which the ranks agree on after some of them (nodes_path.hpp).
Status CommunicatorImpl::run_over_nodes(const Job& job, const Choice& choice, Counted counted) {
  HEDDLE_TRY(run_schedule(job, choice, counted));
  const bool served_there = job.collective == Collective::allreduce || job.collective == Collective::bcast;
  const bool counts = served_there && job.count * job.element_bytes >= NodesPath::kFrom;
  return counts ? nodes_path_->count_staged() : Status();
}

Status CommunicatorImpl::run_job(const Job& job, Counted counted) {
  const Aside aside(*this);
  return run(job, counted);
}

Status CommunicatorImpl::run_on_team(TeamOp& op) {
  const Aside aside(*this);
  return run_on(*connections_->teams[static_cast<std::size_t>(TeamKind::node)], op);
}

Status CommunicatorImpl::run_choice(const Job& job, const Choice& choice) {
  const Aside aside(*this);
  const bool by_team =
      team_ != nullptr && !choice.algorithm->needs_messages && !choice.algorithm->needs_domains;
  return by_team ? run_team(job) : run_schedule(job, choice, Counted::no);
}

Status CommunicatorImpl::allreduce(const void* in, void* out, std::size_t count, DType type, Op op) {
  if (asked_ != nullptr) [[unlikely]]
    return in_turn(asked_, [=, this] { return allreduce(in, out, count, type, op); });
  if (size_ == 1) {
    if (in != out && count > 0) std::memmove(out, in, count * dtype_size(type));
    return {};
  }
  ++calls_;
  return run({Collective::allreduce, in, out, count, dtype_size(type), folds_.of(type, op, count), 0,
              fold_kind(type, op)},
             Counted::yes);
}

Status CommunicatorImpl::bcast(void* buffer, std::size_t bytes, int root) {
  if (asked_ != nullptr) [[unlikely]]
    return in_turn(asked_, [=, this] { return bcast(buffer, bytes, root); });
  if (size_ == 1) return {};
  if (++calls_ >= bcasts_meet_) [[unlikely]]
    return meet_after_bcast(
        run_job({Collective::bcast, buffer, buffer, bytes, 1, nullptr, root}, Counted::yes));
  return run({Collective::bcast, buffer, buffer, bytes, 1, nullptr, root}, Counted::yes);
}

Result<bool> CommunicatorImpl::bcast_view(PackedView& view, std::size_t bytes, int root) {
  const Turn turn(asked_);
  const std::uint64_t bit = std::uint64_t{1} << size_class(bytes);
  if ((by_team_[static_cast<std::size_t>(Collective::bcast)] & bit) == 0 || !team_->reads_views(bytes))
    return false;
  const Job job{Collective::bcast, nullptr, nullptr, bytes, 1, nullptr, root};
  if (++calls_ < bcasts_meet_) {
    HEDDLE_TRY(run_team(job, &view));
    return true;
  }
  const auto aside = [&] {
    const Aside meeting(*this);
    return run_team(job, &view);
  };
  HEDDLE_TRY(meet_after_bcast(aside()));
  return true;
}

// What the others pass as `out` means nothing.
Job CommunicatorImpl::reduce_job(const void* in, void* out, std::size_t count, DType type, Op op, int root) {
  return {Collective::reduce,         in,  rank_ == root ? out : nullptr, count, dtype_size(type),
          folds_.of(type, op, count), root};
}

Status CommunicatorImpl::reduce(const void* in, void* out, std::size_t count, DType type, Op op, int root) {
  if (asked_ != nullptr) [[unlikely]]
    return in_turn(asked_, [=, this] { return reduce(in, out, count, type, op, root); });
  if (size_ == 1) {
    if (in != out && count > 0) std::memmove(out, in, count * dtype_size(type));
    return {};
  }
  ++calls_;
  return run(reduce_job(in, out, count, type, op, root), Counted::yes);
}

std::byte* CommunicatorImpl::own_place(void* out, std::size_t bytes) const {
  return static_cast<std::byte*>(out) + static_cast<std::size_t>(rank_) * bytes;
}

Job CommunicatorImpl::allgather_job(const void* in, void* out, std::size_t bytes) const {
  return {Collective::allgather, in != nullptr ? in : own_place(out, bytes), out, bytes, 1, nullptr, 0};
}

void CommunicatorImpl::place_own(const Job& job) const {
  if (job.collective != Collective::allgather) return;
  std::byte* const own = own_place(job.out, job.count);
  if (own != job.in && job.count > 0) std::memcpy(own, job.in, job.count);
}

Status CommunicatorImpl::allgather(const void* in, void* out, std::size_t bytes) {
  if (asked_ != nullptr) [[unlikely]]
    return in_turn(asked_, [=, this] { return allgather(in, out, bytes); });
  const Job job = allgather_job(in, out, bytes);
  if (size_ == 1) {
    place_own(job);
    return {};
  }
  ++calls_;
  return run(job, Counted::yes);
}

Status CommunicatorImpl::barrier() {
  if (asked_ != nullptr) [[unlikely]]
    return in_turn(asked_, [=, this] { return barrier(); });
  if (size_ == 1) return {};
  return run({Collective::barrier, nullptr, nullptr, 0, 1, fold_kernel(DType::u8, Op::bor), 0}, Counted::no);
}

// By what serves a request of the same sum, so that a rank which starts one meets the others here.
Status CommunicatorImpl::compare(const CollectiveCall& call) {
  const Turn turn(asked_);
  const Aside aside(*this);
  CallTable calls(size_);
  calls.state(rank_, call);
  const std::uint64_t number = ++compared_;
  if (size_ > 1) {
    if (!broken_.ok()) return failed_before();
    const Job job = Comparison::job_of(calls);
    const Result<const Selection*> selection = selection_of_request(job);
    if (!selection.ok()) return selection.status();
    const Choice& choice = selection.value()->choice;
    HEDDLE_TRY(with_memory(
        [&] { return is_request_by_team(choice) ? run_team(job) : run_schedule(job, choice, Counted::no); }));
  }
  return calls.judge(number);
}

// Of a number of bcasts that becomes ever smaller in proportion. Otherwise a program that does nothing else
// would have no call that tells all ranks where the others are (device_path.hpp).
Status CommunicatorImpl::meet_after_bcast(const Status& bcast) {
  HEDDLE_TRY(bcast);
  bcasts_meet_ = 4 * calls_;
  met_at_ = calls_;
  return meet({});
}

Status CommunicatorImpl::meet(std::span<std::uint64_t> words) {
  const Turn turn(asked_);
  const Aside aside(*this);
  if (!broken_.ok()) return failed_before();
  const Job job = words_job(words, Op::max);
  if (team_ != nullptr) return run_team(job);
  TeamOp op = team_op(job);
  return run_on_team(op);
}

Result<std::unique_ptr<Communicator>> Communicator::create(const Bootstrap& bootstrap, const Config& config) {
  Result<std::unique_ptr<Connections>> connections = connect(bootstrap, config);
  if (!connections.ok()) return connections.status();
  auto made = std::make_unique<CommunicatorImpl>(bootstrap, config, std::move(connections).value());
  HEDDLE_TRY(Learning(*made, bootstrap, config).run());
  if (bootstrap.has_requests) made->plan_thread(config.progress_thread);
  made->find_fold_cores();
  if (made->needs_thread()) made->start_thread();
  made->report_passed_over(config);
  return std::unique_ptr<Communicator>(std::move(made));
}

}  // namespace heddle
