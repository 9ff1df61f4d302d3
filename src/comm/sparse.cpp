// Allreduce of sparse streams: first an agreement, one small dense allreduce; then the streams, or a dense vector.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator_impl.hpp"
#include "comm/complete.hpp"
#include "engine/kernels/kernels.hpp"

namespace heddle {
namespace {

// Whether a vector of the dimension takes no more memory than what a few streams of these entries do.
bool fits_dense(const SparseJob& job, std::uint64_t total) {
  const std::uint64_t stream = total * (index_size(job.in.index_type) + dtype_size(job.in.value_type));
  return job.in.dimension <= 2 * stream / dtype_size(job.in.value_type);
}

// Where the agreement fails, a rank whose own stream is at fault knows more than the others.
Status agreed(const Agreement& agreement, const Status& valid) {
  Status status = agreement.check();
  return status.ok() || valid.ok() ? status : valid;
}

void scatter(std::span<const SparseView> parts, std::byte* dense) {
  for (const SparseView& part : parts) {
    const std::size_t width = dtype_size(part.value_type);
    for (std::size_t i = 0; i < part.count; ++i)
      std::memcpy(dense + part.index(i) * width, static_cast<const std::byte*>(part.values) + i * width,
                  width);
  }
}

}  // namespace

Job CommunicatorImpl::agreement_job(Agreement& agreement) {
  const std::span<std::uint64_t> words = agreement.words();
  return {Collective::allreduce,
          words.data(),
          words.data(),
          words.size(),
          sizeof(std::uint64_t),
          fold_kernel(DType::u64, Op::sum),
          0};
}

void CommunicatorImpl::note_sparse(const char* algorithm, std::uint64_t entries, std::uint64_t result_entries,
                                   std::uint64_t bytes_sent) {
  sparse_stats_ = {algorithm, entries, result_entries, bytes_sent};
}

// What delivering throws or returns is this rank's alone: the collective is over.
Status CommunicatorImpl::deliver(const SparseJob& job, const StreamExecution& streams) {
  const std::vector<SparseView> parts = streams.result();
  if (job.dense == nullptr) return job.deliver(parts);
  auto* dense = static_cast<std::byte*>(job.dense);
  std::memset(dense, 0, job.in.dimension * dtype_size(job.in.value_type));
  scatter(parts, dense);
  return {};
}

// ---- Blocking

Status CommunicatorImpl::sparse_allreduce(const SparseJob& job) {
  if (asked_ != nullptr) [[unlikely]]
    return in_turn(asked_, [&, this] { return sparse_allreduce(job); });
  const Status valid = check_sparse(job.in);
  const auto known = profiles_.find(job.in.dimension);
  Agreement agreement(size_, known == profiles_.end() && size_ > 1 ? samples_shown(size_) : 0);
  agreement.state(rank_, job.in, job.op, valid.ok());
  if (size_ > 1) HEDDLE_TRY(run_job(agreement_job(agreement)));
  HEDDLE_TRY(agreed(agreement, valid));
  const Profile profile = known == profiles_.end() ? Profile::of_samples(agreement) : known->second;
  SparseCall call{job.in.dimension, agreement.total(), job.in.value_type, false};
  call.may_be_dense = job.op == Op::sum && job.dense != nullptr && fits_dense(job, call.total);
  const SparseChoice& choice = sparse_.choose(size_, call, profile.distinct());
  return choice.dense ? run_dense(job, agreement) : run_streams(job, agreement, profile, choice);
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
  StreamBinding binding{job.in, job.op, profile.cuts(job.in.dimension, streams.schedule().chunks),
                        agreement.total(), next_sequence()};
  HEDDLE_TRY(streams.start(std::move(binding)));
  HEDDLE_TRY(complete(streams));
  const std::vector<SparseView> parts = streams.result();
  profiles_.insert_or_assign(job.in.dimension,
                             Profile::of_result(parts, agreement.total(), job.in.dimension));
  if (profiles_.size() > 1024) profiles_.clear();
  std::uint64_t entries = 0;
  for (const SparseView& part : parts)
    entries += part.count;
  note_sparse(choice.streams.algorithm->name, agreement.total(), entries, streams.bytes_sent());
  return deliver(job, streams);
}

Status CommunicatorImpl::run_dense(const SparseJob& job, const Agreement& agreement) {
  const std::size_t width = dtype_size(job.in.value_type);
  std::memset(job.dense, 0, job.in.dimension * width);
  const SparseView parts[] = {job.in};
  scatter(parts, static_cast<std::byte*>(job.dense));
  note_sparse("dense", agreement.total(), 0, 0);
  return run_job({Collective::allreduce, job.dense, job.dense, job.in.dimension, width,
              folds_.of(job.in.value_type, job.op, job.in.dimension), 0});
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
  Result<std::unique_ptr<RequestImpl>> agreeing = comm_.request(CommunicatorImpl::agreement_job(agreement_));
  if (!agreeing.ok()) return agreeing.status();
  agreeing_ = std::move(agreeing).value();
  return {};
}

Status SparseRequest::begin() {
  valid_ = check_sparse(job_.in);
  outcome_ = {};
  agreement_.state(comm_.rank_, job_.in, job_.op, valid_.ok());
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
  const SparseCall call{job_.in.dimension, agreement_.total(), job_.in.value_type, false};
  const SparseChoice& choice = comm_.sparse_.choose(comm_.size_, call, profile.distinct());
  const std::shared_ptr<const Schedule> schedule = comm_.plans_.schedule(choice.streams, 0);
  if (!streams_ || &streams_->schedule() != schedule.get())
    streams_ = std::make_unique<StreamExecution>(schedule, comm_.connections_->ports);
  stage_ = Stage::exchanging;
  return streams_->start(
      {job_.in, job_.op, profile.cuts(job_.in.dimension, schedule->chunks), agreement_.total(), sequence_});
}

Status SparseRequest::move(bool* done) {
  *done = false;
  if (stage_ == Stage::agreeing) {
    if (agreeing_ && agreeing_->is_active()) return {};
    outcome_ = agreed(agreement_, valid_);
    if (!outcome_.ok()) {
      stage_ = Stage::idle;
      *done = true;
      return {};
    }
    HEDDLE_TRY(open_streams());
  }
  HEDDLE_TRY(streams_->poll(done));
  if (!*done) return {};
  outcome_ = comm_.deliver(job_, *streams_);
  stage_ = Stage::idle;
  return {};
}

}  // namespace heddle
