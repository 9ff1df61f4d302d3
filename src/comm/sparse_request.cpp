// Non-blocking and persistent sums of sparse streams.
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "comm/communicator_impl.hpp"
#include "comm/sparse_sums.hpp"

namespace heddle {

Result<std::unique_ptr<Request>> CommunicatorImpl::sparse_allreduce_request(SparseJob job) {
  const Turn turn(asked_);
  if (!broken_.ok()) return failed_before();
  auto request = std::make_unique<SparseRequest>(*this, std::move(job));
  HEDDLE_TRY(request->prepare());
  return std::unique_ptr<Request>(std::move(request));
}

// The samples come along each time: what earlier collectives showed is not the same on all ranks at the time
// of a start, since those may still be under way on some.
SparseRequest::SparseRequest(CommunicatorImpl& comm, SparseJob job)
    : MovingRequest(comm),
      job_(std::move(job)),
      agreement_(comm.size_, comm.size_ > 1 ? samples_shown(comm.size_) : 0) {}

SparseRequest::~SparseRequest() {
  const Turn turn(comm_.asked_);
  SparseRequest::stop();
  leave();
}

void SparseRequest::stop() {
  if (streams_) streams_->abandon();
  stage_ = Stage::idle;
}

Status SparseRequest::prepare() {
  if (comm_.size_ == 1) return {};
  Result<std::unique_ptr<RequestImpl>> agreeing =
      comm_.request(agreement_job(agreement_, kSparseRequestAgreement),
                    CollectiveCall::of(CollectiveCall::Kind::sparse_allreduce));
  if (!agreeing.ok()) return agreeing.status();
  agreeing_ = std::move(agreeing).value();
  return {};
}

std::vector<std::byte> SparseRequest::copy_of_indices() const {
  const auto* bytes = static_cast<const std::byte*>(job_.in.indices);
  return {bytes, bytes + job_.in.count * index_size(job_.in.index_type)};
}

// Where another start has left a copy of them.
Status SparseRequest::keeps_indices() const {
  const SparseView& now = job_.in;
  if (first_indices_.empty() || std::memcmp(first_indices_.data(), now.indices, first_indices_.size()) == 0)
    return {};
  SparseView first = now;
  first.indices = first_indices_.data();
  std::size_t entry = 0;
  while (first.index(entry) == now.index(entry))
    ++entry;
  return Status(
      Code::invalid_argument,
      fmt::format(
          "the index of entry {} is {}, and was {} at the first start of this persistent request, which "
          "goes on with those from then; other indices take another request",
          entry, now.index(entry), first.index(entry)));
}

Status SparseRequest::begin() {
  arrived_ = false;
  if (streams_ && streams_->remembers()) {
    const Result<std::uint32_t> sequence = enter();
    if (!sequence.ok()) return sequence.status();
    stage_ = Stage::exchanging;
    return comm_.with_memory([&, this] { return streams_->again(job_.in.values, sequence.value()); });
  }
  valid_ = check_sparse(job_.in);
  if (valid_.ok()) valid_ = keeps_indices();
  outcome_ = {};
  agreement_.state(comm_.rank_, job_.in, job_.op, SparseForm::entries, valid_.ok());
  if (agreeing_) HEDDLE_TRY(agreeing_->begin());
  // The others may be in the agreement with this rank by now.
  const Result<std::uint32_t> sequence = comm_.with_memory([this] { return enter(); });
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
  const SparseChoice& choice = comm_.sparse_.planner().choose(comm_.size_, call, profile.distinct());
  const std::shared_ptr<const Schedule> schedule = comm_.plans_.schedule(choice.streams, 0);
  if (!streams_ || &streams_->schedule() != schedule.get())
    streams_ = std::make_unique<StreamExecution>(schedule, comm_.connections_->ports);
  algorithm_ = choice.streams.algorithm->name;
  stage_ = Stage::exchanging;
  StreamBinding binding{job_.in, job_.op, profile.cuts(job_.in.dimension, schedule->chunks),
                        agreement_.total(), sequence_};
  binding.threads = comm_.sparse_.fold_threads();
  // With HEDDLE_CHECK each start has an agreement: the calls are compared in it, and it tells all ranks of
  // one that has changed its indices.
  binding.remember = job_.keeps_pattern && job_.op == Op::sum && !comm_.compares();
  if (job_.keeps_pattern && comm_.compares() && first_indices_.empty()) first_indices_ = copy_of_indices();
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
  return deliver(job_, parts);
}

}  // namespace heddle
