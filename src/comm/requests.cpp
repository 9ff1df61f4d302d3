#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "comm/communicator_impl.hpp"
#include "engine/kernels/kernels.hpp"

namespace heddle {

namespace {

Result<std::unique_ptr<Request>> plain(Result<std::unique_ptr<RequestImpl>> made) {
  if (!made.ok()) return made.status();
  return std::unique_ptr<Request>(std::move(made).value());
}

}  // namespace

bool CommunicatorImpl::is_request_by_team(const Choice& choice) const {
  return team_ != nullptr && !choice.algorithm->needs_messages;
}

// By the team where that is what serves a blocking one, else by messages alone.
Result<const Selection*> CommunicatorImpl::selection_of_request(const Job& job) {
  const std::size_t bytes = job.count * job.element_bytes;
  if (team_ != nullptr) {
    const Result<const Selection*> selection = plans_.selection(job.collective, bytes, false);
    if (!selection.ok() || is_request_by_team(selection.value()->choice)) return selection;
  }
  return plans_.selection(job.collective, bytes, true);
}

Result<std::unique_ptr<RequestImpl>> CommunicatorImpl::request(const Job& job) {
  const Turn turn(asked_);
  if (!broken_.ok()) return failed_before();
  const Result<const Selection*> selection = selection_of_request(job);
  if (!selection.ok()) return selection.status();
  const Choice& choice = selection.value()->choice;
  if (is_request_by_team(choice))
    return std::unique_ptr<RequestImpl>(std::make_unique<TeamRequest>(*this, job));
  return std::unique_ptr<RequestImpl>(
      std::make_unique<MessageRequest>(*this, job, plans_.schedule(choice, job.root), connections_->ports));
}

Result<std::unique_ptr<RequestImpl>> CommunicatorImpl::request(const Job& job, const CollectiveCall& call) {
  Result<std::unique_ptr<RequestImpl>> made = request(job);
  if (!made.ok() || !compares() || size_ == 1) return made;
  Result<std::unique_ptr<Comparison>> comparison = Comparison::make(*this, call);
  if (!comparison.ok()) return comparison.status();
  made.value()->compare_first(std::move(comparison).value());
  return made;
}

Result<std::unique_ptr<Request>> CommunicatorImpl::allreduce_request(const void* in, void* out,
                                                                     std::size_t count, DType type, Op op) {
  return plain(request({Collective::allreduce, in, out, count, dtype_size(type), folds_.of(type, op, count),
                        0, fold_kind(type, op)},
                       CollectiveCall::allreduce(count, type, op)));
}

Result<std::unique_ptr<Request>> CommunicatorImpl::bcast_request(void* buffer, std::size_t bytes, int root) {
  return plain(request({Collective::bcast, buffer, buffer, bytes, 1, nullptr, root},
                       CollectiveCall::bcast(bytes, root)));
}

Result<std::unique_ptr<Request>> CommunicatorImpl::reduce_request(const void* in, void* out,
                                                                  std::size_t count, DType type, Op op,
                                                                  int root) {
  return plain(
      request(reduce_job(in, out, count, type, op, root), CollectiveCall::reduce(count, type, op, root)));
}

Result<std::unique_ptr<Request>> CommunicatorImpl::allgather_request(const void* in, void* out,
                                                                     std::size_t bytes) {
  return plain(request(allgather_job(in, out, bytes), CollectiveCall::allgather(bytes)));
}

Result<std::unique_ptr<Request>> CommunicatorImpl::barrier_request() {
  return plain(request({Collective::barrier, nullptr, nullptr, 0, 1, fold_kernel(DType::u8, Op::bor), 0},
                       CollectiveCall::of(CollectiveCall::Kind::barrier)));
}

Status CommunicatorImpl::progress() {
  const Turn turn(asked_);
  return move_requests();
}

bool CommunicatorImpl::failed() {
  const Turn turn(asked_);
  return !broken_.ok();
}

void CommunicatorImpl::give_up(const Status& why) {
  const Turn turn(asked_);
  if (broken_.ok()) (void)fail(why);
}

// Where messages are lent their owner may not expect calls from a thread of ours. A thread that has nothing
// to sleep on wants a core that is left over, or else it costs more than it gains.
void CommunicatorImpl::plan_thread(ProgressThreadSetting setting) {
  if (setting == ProgressThreadSetting::off || size_ == 1) return;
  const bool asked_for = setting != ProgressThreadSetting::automatic;
  if (connections_->internode.lent) {
    if (asked_for)
      log_.warn(
          "HEDDLE_PROGRESS_THREAD is not used: messages between nodes are the MPI's, which may not expect "
          "them from another thread (HEDDLE_TRANSPORTS=shm,ucx takes UCX's)");
    return;
  }
  Transport* const far = connections_->internode.transport.get();
  const bool sleeps = far != nullptr && far->wake_descriptor() >= 0;
  if (!sleeps && !asked_for) return;
  ThreadPlan plan;
  const bool may_have_one = asked_for && connections_->own_core;
  plan.core = may_have_one ? spare_core(connections_->claims, topology().member_index(rank_)) : -1;
  if (plan.core < 0 && !sleeps && setting != ProgressThreadSetting::always) {
    log_.info("HEDDLE_PROGRESS_THREAD=1 is not used on this rank: no core is left for it");
    return;
  }
  plan.work.step = [this] {
    return move_requests().ok() && (!active_.empty() || !turns_.empty() || !settle());
  };
  if (sleeps) {
    plan.work.arm = [far] { return far->arm() ? far->wake_descriptor() : -1; };
    // What the ranks of the node do in shared memory shows in no descriptor.
    constexpr std::chrono::microseconds kBesideOthers{100};
    plan.work.longest_sleep = connections_->shm ? kBesideOthers : kLongestSleep;
  }
  thread_plan_ = std::move(plan);
}

// Where what was sent may have to be pushed on after the collective that sent it.
bool CommunicatorImpl::needs_thread() const {
  const Transport* far = connections_->internode.transport.get();
  return thread_plan_ && far != nullptr && far->capabilities().sends_later;
}

// Nothing that was sent is left in this process.
bool CommunicatorImpl::settle() {
  Transport* const far = connections_->internode.transport.get();
  return far == nullptr || !broken_.ok() || far->settled() || !far->progress().ok() || far->settled();
}

// At the end of what may have sent something: nobody may call this communicator for long.
void CommunicatorImpl::leave_to_thread() {
  // What links of 10 Gbit/s take in 50 microseconds; what a socket has no room for is seldom less.
  constexpr std::size_t kPressing = std::size_t{64} << 10;
  if (!thread_ || !connections_->internode.transport) return;
  const std::size_t left = connections_->internode.transport->unsettled_bytes();
  // What was left before has been moved by this call as well.
  const std::size_t before = std::exchange(unsettled_, left);
  if (left > before + kPressing) {
    thread_->wake();
  } else if (left > 0) {
    thread_->look_soon();
  }
}

// Else with the first request: most communicators never have one.
void CommunicatorImpl::start_thread() {
  const ThreadPlan plan = std::move(*thread_plan_);
  thread_plan_.reset();
  try {
    thread_ = std::make_unique<ProgressThread>(plan.work, plan.core);
    asked_ = thread_.get();
  } catch (const std::system_error& e) {
    log_.warn(fmt::format("no thread moves requests while the caller computes: {}", e.what()));
  }
}

Status CommunicatorImpl::move_requests() {
  return broken_.ok() ? with_memory([this] { return move_active(); }) : broken_;
}

Status CommunicatorImpl::move_active() {
  progress_team();
  if (!broken_.ok()) [[unlikely]]
    return broken_;
  for (std::size_t i = 0; i < active_.size();) {
    bool done = false;
    Status status = active_[i]->move_on(&done);
    if (!status.ok()) return fail(std::move(status));
    if (done) {
      active_[i] = active_.back();
      active_.pop_back();
    } else {
      ++i;
    }
  }
  return {};
}

void CommunicatorImpl::progress_team() {
  while (!turns_.empty()) {
    TeamRequest& first = *turns_.front();
    const InFloatMode mode(first.mode_);
    if (!first.under_way_) {
      if (first.comparison_ && !may_begin(*first.comparison_)) [[unlikely]]
        return;
      team_->start(first.op_);
      first.under_way_ = true;
    }
    if (!team_->poll(first.op_)) return;
    first.active_ = false;
    turns_.pop();
  }
}

// Whoever waits for one of them is told, and may free its buffers: nothing writes there any more, also no
// thread.
void CommunicatorImpl::lose_requests() {
  for (MovingRequest* request : std::exchange(active_, {}))
    request->lose();
  for (; !turns_.empty(); turns_.pop())
    turns_.front()->lose();
}

// They are done in turn.
Status CommunicatorImpl::finish_team_requests() {
  return wait_for(*turns_.back());
}

// ---- Every request

RequestImpl::~RequestImpl() = default;

// Where memory is missing once the comparison has begun the others are in it.
Status RequestImpl::begin_compared() {
  return comm_.with_memory([this] { return begin(); });
}

void RequestImpl::compare_first(std::unique_ptr<Comparison> comparison) {
  comparison_ = std::move(comparison);
}

bool RequestImpl::active() const {
  if (comm_.asked_ != nullptr) [[unlikely]]
    return in_turn(comm_.asked_, [this] { return is_active(); });
  return is_active();
}

Status RequestImpl::start() {
  if (comm_.thread_plan_) [[unlikely]]
    comm_.start_thread();
  if (comm_.asked_ != nullptr) [[unlikely]]
    return in_turn(comm_.asked_, [=, this] { return start(); });
  if (!comm_.broken_.ok()) return comm_.failed_before();
  if (is_active())
    return Status(Code::invalid_argument, "a request was started while it is active: wait for it first");
  tests_.reset();
  HEDDLE_TRY(comparison_ == nullptr ? begin() : begin_compared());
  if (comm_.thread_) comm_.thread_->wake();
  return comm_.move_requests();
}

Status RequestImpl::test(bool* done) {
  if (comm_.asked_ != nullptr) [[unlikely]]
    return in_turn(comm_.asked_, [=, this] { return test(done); });
  if (lost_ || is_active()) {
    if (!comm_.broken_.ok()) return comm_.failed_before();
    if (comm_.policy_.host_progress) comm_.policy_.host_progress();
    HEDDLE_TRY(comm_.move_requests());
    if (is_active()) HEDDLE_TRY(look_around());
  }
  *done = !is_active();
  return *done ? outcome() : Status();
}

// Who polls is to learn what who waits does: of the deadline, of ranks that are gone, and of those that do
// something else.
Status RequestImpl::look_around() {
  if (!tests_) tests_.emplace(comm_.policy_);
  if (!tests_->glance() || comm_.watch_.inspect(waiting_for(), *tests_).ok()) return {};
  // Whoever is gone may have done its part after the poll, and then ended.
  HEDDLE_TRY(comm_.move_requests());
  if (!is_active()) return {};
  Status status = comm_.watch_.inspect(waiting_for(), *tests_);
  return status.ok() ? status : comm_.fail(std::move(status));
}

Status RequestImpl::wait() {
  if (comm_.asked_ != nullptr) [[unlikely]]
    return in_turn(comm_.asked_, [=, this] { return wait(); });
  if (lost_ || is_active()) {
    if (!comm_.broken_.ok()) return comm_.failed_before();
    HEDDLE_TRY(comm_.wait_for(*this));
  }
  return outcome();
}

Status CommunicatorImpl::wait_for(const RequestImpl& request) {
  const auto poll = [&](bool* done) -> Status {
    HEDDLE_TRY(move_requests());
    *done = !request.is_active();
    return {};
  };
  const auto look = [&](Patience& patience) { return watch_.inspect(request.waiting_for(), patience); };
  Status status = wait_until_done(policy_, poll, look);
  return status.ok() ? status : fail(std::move(status));
}

// ---- By messages

void MovingRequest::leave() {
  std::erase(comm_.active_, this);
}

Result<std::uint32_t> MovingRequest::enter() {
  HEDDLE_TRY(comm_.free_sequence());
  mode_ = FloatMode::current();
  started_ = comm_.sequence_;
  comm_.active_.push_back(this);
  return comm_.next_sequence();
}

void MovingRequest::give_back() {
  leave();
  --comm_.sequence_;
}

MessageRequest::~MessageRequest() {
  const Turn turn(comm_.asked_);
  execution_.abandon();
  leave();
}

Status MessageRequest::begin() {
  if (comparison_) HEDDLE_TRY(comparison_->begin());
  binding_ = comm_.bind(job_);
  const Result<std::uint32_t> sequence = enter();
  if (!sequence.ok()) return sequence.status();
  binding_.sequence = sequence.value();
  waits_ = comparison_ != nullptr;
  if (waits_) return {};
  Status started = execution_.start(binding_);
  if (started.ok()) {
    comm_.place_own(job_);
  } else {
    give_back();
  }
  return started;
}

Status MessageRequest::move(bool* done) {
  if (waits_) {
    *done = false;
    if (!comm_.may_begin(*comparison_)) return comm_.broken_;
    waits_ = false;
    HEDDLE_TRY(comm_.with_memory([this] { return execution_.start(binding_); }));
    comm_.place_own(job_);
  }
  return execution_.poll(done);
}

// ---- By the team

// One that is given up leaves the others waiting for this rank's part, and with it all that comes after.
TeamRequest::~TeamRequest() {
  const Turn turn(comm_.asked_);
  if (!active_) return;
  for (std::size_t i = 0; i < comm_.turns_.size(); ++i) {
    if (comm_.turns_[i] == this) comm_.turns_.erase(i--);
  }
  if (comm_.broken_.ok())
    (void)comm_.fail(Status(Code::invalid_argument, "a request was given up before it was complete"));
}

Status TeamRequest::begin() {
  if (comparison_) HEDDLE_TRY(comparison_->begin());
  op_ = CommunicatorImpl::team_op(job_);
  mode_ = FloatMode::current();
  under_way_ = false;
  comm_.turns_.push(this);
  active_ = true;  // not where there was no memory for its turn: it may be started again
  return {};
}

Waiting TeamRequest::waiting_for() const {
  const TeamRequest& first = *comm_.turns_.front();
  if (!first.under_way_)
    return first.comparison_ && first.comparison_->is_active() ? first.comparison_->waiting_for() : Waiting{};
  const TeamOp& op = first.op_;
  const Team& team = *comm_.team_;
  return {Waiting::On::member, team.missing(op), TeamKind::node, team.clash(op), team.passed(op)};
}

}  // namespace heddle
