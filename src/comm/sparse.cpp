// Allreduce of sparse streams: first an agreement, one small dense allreduce; then the streams, or a dense vector.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.hpp"
#include "comm/communicator_impl.hpp"
#include "comm/complete.hpp"
#include "engine/kernels/kernels.hpp"
#include "sparse/convert.hpp"

namespace heddle {
namespace {

std::uint64_t count_of(std::span<const SparseView> parts) {
  std::uint64_t count = 0;
  for (const SparseView& part : parts)
    count += part.count;
  return count;
}

// Of no elements it is one: that vector may be null on some ranks.
SparseForm form_of(const SparseJob& job) {
  if (!job.has_vector() || job.in.dimension == 0) return SparseForm::entries;
  return job.in_place ? SparseForm::in_place : SparseForm::vector;
}

}  // namespace

std::uint64_t agreement_number(const SparseJob& job) {
  const auto type = static_cast<std::uint64_t>(job.in.value_type);
  return mix64(mix64(job.in.dimension) ^ (type << 8 | static_cast<std::uint64_t>(job.op)));
}

Job CommunicatorImpl::agreement_job(Agreement& agreement, FoldKind kind) {
  const std::span<std::uint64_t> words = agreement.words();
  return {Collective::allreduce,
          words.data(),
          words.data(),
          words.size(),
          sizeof(std::uint64_t),
          fold_kernel(DType::u64, Op::sum),
          0,
          kind};
}

void CommunicatorImpl::note_sparse(const char* algorithm, std::uint64_t entries, std::uint64_t result_entries,
                                   std::uint64_t bytes_sent) {
  sparse_stats_ = {algorithm, entries, result_entries, bytes_sent};
}

// Folding is bound by memory: more threads than these gain little.
void CommunicatorImpl::find_fold_cores() {
  constexpr std::size_t kMost = 3;
  const bool one_taken = thread_plan_ && thread_plan_->core >= 0;
  const std::vector<int> cores =
      spare_cores(connections_->claims, topology().member_index(rank_), one_taken, kMost);
  if (!cores.empty()) fold_threads_ = std::make_unique<ThreadedFold>(cores);
}

// What delivering throws or returns is this rank's alone: the collective is over.
Status CommunicatorImpl::deliver(const SparseJob& job, std::span<const SparseView> parts) {
  if (job.deliver) return job.deliver(parts);
  // In place the result has all entries that were there, and more.
  if (job.there != nullptr) {
    job.there->put(parts, job.in_place);
  } else {
    scatter(parts, job.dense, job.in.dimension * dtype_size(job.in.value_type), job.in_place);
  }
  return {};
}

// ---- Blocking

Status CommunicatorImpl::sparse_allreduce(const SparseJob& job) {
  if (asked_ != nullptr) [[unlikely]]
    return in_turn(asked_, [&, this] { return sparse_allreduce(job); });
  return with_memory([&, this] { return exchange_sparse(job); });
}

// In the agreement all ranks meet.
Status CommunicatorImpl::exchange_sparse(const SparseJob& job) {
  ++calls_;
  const Status valid = job.trouble.ok() ? look_through(job) : job.trouble;
  Agreement agreement(size_, 0);
  agreement.state(rank_, job.in, job.op, form_of(job), valid.ok());
  if (!job.trouble.ok()) agreement.withdraw(rank_, job.trouble.code() == Code::invalid_argument);
  if (size_ > 1) HEDDLE_TRY(run_job(agreement_job(agreement)));
  HEDDLE_TRY(agreement.check(valid));
  if (job.in.dimension == 0) {
    // Where the result goes may be null here, and not there: it says nothing of what the others do.
    note_sparse("none", 0, 0, 0);
    return deliver(job, {});
  }
  const Result<Profile> known = profile_for(job);
  if (!known.ok()) return known.status();
  const Profile& profile = known.value();
  HEDDLE_TRY(learn_node_memory());
  SparseCall call{job.in.dimension, agreement.total(), job.in.value_type};
  call.form = form_of(job);
  call.may_be_dense = job.op == Op::sum && job.has_vector();
  call.handed = node_memory_ != nullptr;
  call.may_be_bitmaps = may_be_bitmaps(job);
  const SparseChoice& choice = sparse_.choose(size_, call, profile.distinct());
  if (choice.bitmaps) {
    bool served = false;
    Status status = run_bitmaps(job, agreement, &served);
    if (served || !status.ok()) return status;
  }
  return choice.dense ? run_dense(job, agreement) : run_streams(job, agreement, profile, choice);
}

// Whether the ranks of this one node can map each other's memory: tried once, by all.
Status CommunicatorImpl::learn_node_memory() {
  if (node_memory_known_) return {};
  node_memory_known_ = true;
  if (topology().nodes() > 1 || size_ == 1) return {};
  auto memory = std::make_unique<HeapMemory>(connections_->process->heap, size_);
  constexpr std::uint64_t kMark = 0x6864646c'6d656d00ULL;
  struct Shown {
    std::uint64_t is_there;
    NodePlace place;
  };
  std::vector<Shown> all(static_cast<std::size_t>(size_));
  Shown& own = all[static_cast<std::size_t>(rank_)];
  Buffer trial(memory.get());
  if (trial.grow(sizeof kMark)) {
    const std::uint64_t mark = kMark + static_cast<std::uint64_t>(rank_);
    std::memcpy(trial.data(), &mark, sizeof mark);
    own.is_there = memory->place_of(trial.data(), sizeof mark, &own.place) ? 1 : 0;
  }
  static_assert(sizeof(Shown) % sizeof(std::uint64_t) == 0);
  HEDDLE_TRY(allreduce(all.data(), all.data(), all.size() * sizeof(Shown) / sizeof(std::uint64_t), DType::u64,
                       Op::sum));
  std::uint64_t reached = 1;
  for (int rank = 0; rank < size_ && reached != 0; ++rank) {
    const Shown& shown = all[static_cast<std::size_t>(rank)];
    std::uint64_t mark = 0;
    const std::byte* there = rank == rank_         ? trial.data()
                             : shown.is_there != 0 ? memory->at(rank, shown.place)
                                                   : nullptr;
    if (there != nullptr) std::memcpy(&mark, there, sizeof mark);
    if (mark != kMark + static_cast<std::uint64_t>(rank)) reached = 0;
  }
  // The sum is a barrier as well: the trial's memory may go afterwards.
  HEDDLE_TRY(allreduce(&reached, &reached, 1, DType::u64, Op::min));
  if (reached != 0) node_memory_ = std::move(memory);
  return {};
}

// From the call before, or by samples, now that all agree on the dimension.
Result<Profile> CommunicatorImpl::profile_for(const SparseJob& job) {
  const auto known = profiles_.find(job.in.dimension);
  if (known != profiles_.end()) return known->second;
  if (size_ == 1) return Profile();
  Agreement samples(size_, samples_shown(size_));
  samples.state(rank_, job.in, job.op, form_of(job), true);
  HEDDLE_TRY(run_job(agreement_job(samples)));
  if (profiles_.size() > 1024) profiles_.clear();
  return profiles_.emplace(job.in.dimension, Profile::of_samples(samples)).first->second;
}

StreamExecution& CommunicatorImpl::streams_of(const Choice& choice) {
  const std::shared_ptr<const Schedule> schedule = plans_.schedule(choice, 0);
  if (streams_.size() > 16) streams_.clear();
  std::unique_ptr<StreamExecution>& streams = streams_[schedule.get()];
  if (!streams) streams = std::make_unique<StreamExecution>(schedule, connections_->ports);
  return *streams;
}

Status CommunicatorImpl::run_streams(const SparseJob& job, const Agreement& agreement, const Profile& profile,
                                     const SparseChoice& choice) {
  StreamExecution& streams = streams_of(choice.streams);
  HEDDLE_TRY(free_sequence());
  StreamBinding binding{job.in,
                        job.op,
                        profile.cuts(job.in.dimension, streams.schedule().chunks),
                        agreement.total(),
                        next_sequence(),
                        node_memory_.get(),
                        fold_threads_.get()};
  HEDDLE_TRY(streams.start(std::move(binding)));
  HEDDLE_TRY(complete(streams));
  // Whoever leaves may give its memory back: by then all must have mapped what they were handed.
  if (node_memory_) HEDDLE_TRY(barrier());
  const std::vector<SparseView> parts = streams.result();
  profiles_.insert_or_assign(job.in.dimension,
                             Profile::of_result(parts, agreement.total(), job.in.dimension));
  note_sparse(choice.streams.algorithm->name, agreement.total(), count_of(parts), streams.bytes_sent());
  return deliver(job, parts);
}

Status CommunicatorImpl::run_dense(const SparseJob& job, const Agreement& agreement) {
  const std::size_t width = dtype_size(job.in.value_type);
  void* dense = job.dense;
  if (job.there != nullptr) {
    // Where there is no image the others wait in vain.
    const Result<void*> image = job.in_place ? job.there->load() : job.there->image();
    if (!image.ok()) return fail(image.status());
    dense = image.value();
  }
  if (!job.in_place) scatter(std::span(&job.in, 1), dense, job.in.dimension * width, false);
  note_sparse("dense", agreement.total(), 0, 0);
  HEDDLE_TRY(run_job({Collective::allreduce, dense, dense, job.in.dimension, width,
                      folds_.of(job.in.value_type, job.op, job.in.dimension), 0}));
  if (job.there != nullptr) job.there->store();
  return {};
}

// ---- Non-blocking and persistent

Result<std::unique_ptr<Request>> CommunicatorImpl::sparse_allreduce_request(SparseJob job) {
  const Turn turn(asked_);
  if (!broken_.ok()) return broken_;
  auto request = std::make_unique<SparseRequest>(*this, std::move(job));
  HEDDLE_TRY(request->prepare());
  return std::unique_ptr<Request>(std::move(request));
}

// The samples come along each time: what earlier collectives showed is not the same on all ranks at the time of a start, since
// those may still be under way on some.
SparseRequest::SparseRequest(CommunicatorImpl& comm, SparseJob job)
    : MovingRequest(comm),
      job_(std::move(job)),
      agreement_(comm.size_, comm.size_ > 1 ? samples_shown(comm.size_) : 0) {}

SparseRequest::~SparseRequest() {
  const Turn turn(comm_.asked_);
  if (streams_) streams_->abandon();
  leave();
}

Status SparseRequest::prepare() {
  if (comm_.size_ == 1) return {};
  Result<std::unique_ptr<RequestImpl>> agreeing =
      comm_.request(CommunicatorImpl::agreement_job(agreement_, kSparseRequestAgreement));
  if (!agreeing.ok()) return agreeing.status();
  agreeing_ = std::move(agreeing).value();
  return {};
}

Status SparseRequest::begin() {
  arrived_ = false;
  if (streams_ && streams_->remembers()) {
    const Result<std::uint32_t> sequence = enter();
    if (!sequence.ok()) return sequence.status();
    stage_ = Stage::exchanging;
    return streams_->again(job_.in.values, sequence.value());
  }
  valid_ = check_sparse(job_.in);
  outcome_ = {};
  agreement_.state(comm_.rank_, job_.in, job_.op, SparseForm::entries, valid_.ok());
  if (agreeing_) HEDDLE_TRY(agreeing_->begin());
  const Result<std::uint32_t> sequence = enter();
  if (!sequence.ok()) return sequence.status();
  sequence_ = sequence.value();
  stage_ = Stage::agreeing;
  return {};
}

Waiting SparseRequest::waiting_for() const {
  if (stage_ == Stage::exchanging) return streams_->waiting_for();
  return agreeing_ && agreeing_->is_active() ? agreeing_->waiting_for() : Waiting{};
}

Status SparseRequest::open_streams() {
  const Profile profile = Profile::of_samples(agreement_);
  const SparseCall call{job_.in.dimension, agreement_.total(), job_.in.value_type};
  const SparseChoice& choice = comm_.sparse_.choose(comm_.size_, call, profile.distinct());
  const std::shared_ptr<const Schedule> schedule = comm_.plans_.schedule(choice.streams, 0);
  if (!streams_ || &streams_->schedule() != schedule.get())
    streams_ = std::make_unique<StreamExecution>(schedule, comm_.connections_->ports);
  algorithm_ = choice.streams.algorithm->name;
  stage_ = Stage::exchanging;
  StreamBinding binding{job_.in, job_.op, profile.cuts(job_.in.dimension, schedule->chunks),
                        agreement_.total(), sequence_};
  binding.threads = comm_.fold_threads_.get();
  binding.remember = job_.keeps_pattern && job_.op == Op::sum;
  return streams_->start(std::move(binding));
}

Status SparseRequest::move(bool* done) {
  return comm_.with_memory([&, this] { return advance(done); });
}

Status SparseRequest::advance(bool* done) {
  *done = false;
  if (stage_ == Stage::agreeing) {
    if (agreeing_ && agreeing_->is_active()) return {};
    outcome_ = agreement_.check(valid_);
    if (!outcome_.ok()) {
      stage_ = Stage::idle;
      *done = true;
      return {};
    }
    HEDDLE_TRY(open_streams());
  }
  HEDDLE_TRY(streams_->poll(done));
  if (!*done) return {};
  arrived_ = true;
  stage_ = Stage::idle;
  return {};
}

Status SparseRequest::outcome() {
  if (!std::exchange(arrived_, false)) return std::exchange(outcome_, {});
  const std::vector<SparseView> parts = streams_->result();
  comm_.note_sparse(algorithm_, agreement_.total(), count_of(parts), streams_->bytes_sent());
  return comm_.deliver(job_, parts);
}

}  // namespace heddle
