// First an agreement, one small dense allreduce; then the streams, or a dense vector.
#include "comm/sparse_sums.hpp"

#include <cstring>
#include <utility>
#include <vector>

#include "base/hash.hpp"
#include "comm/communicator_impl.hpp"
#include "comm/complete.hpp"
#include "sparse/convert.hpp"

namespace heddle {
namespace {

// About 2 KiB each.
constexpr std::size_t kMostProfiles = 1024;

}  // namespace

namespace {

// Of no elements it is one: that vector may be null on some ranks. Whether the sum goes to the vector that
// the entries are from is each rank's own affair: programs of MPI's pass MPI_IN_PLACE on some ranks alone.
SparseForm form_of(const SparseJob& job) {
  if (!job.has_vector() || job.in.dimension == 0) return SparseForm::entries;
  return job.of_vectors ? SparseForm::in_place : SparseForm::vector;
}

}  // namespace

std::uint64_t agreement_number(const SparseJob& job) {
  const auto type = static_cast<std::uint64_t>(job.in.value_type);
  return mix64(mix64(job.in.dimension) ^ (type << 8 | static_cast<std::uint64_t>(job.op)));
}

Job agreement_job(Agreement& agreement, FoldKind kind) {
  return words_job(agreement.words(), Op::sum, kind);
}

SparseSums::SparseSums(CommunicatorImpl& comm)
    : comm_(comm), planner_(comm.rank_, comm.selector_, comm.preferences_, comm.log_) {}

// Folding is bound by memory: more threads than these gain little.
void SparseSums::find_fold_cores() {
  constexpr std::size_t kMost = 3;
  if (!comm_.connections_->own_core) return;
  const bool one_taken = comm_.thread_plan_ && comm_.thread_plan_->core >= 0;
  const std::vector<int> cores =
      spare_cores(comm_.connections_->claims, comm_.topology().member_index(comm_.rank_), one_taken, kMost);
  if (!cores.empty()) fold_threads_ = std::make_unique<ThreadedFold>(cores);
}

Status deliver(const SparseJob& job, std::span<const SparseView> parts) {
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

void CommunicatorImpl::note_sparse(const char* algorithm, std::uint64_t entries, std::uint64_t result_entries,
                                   std::uint64_t bytes_sent) {
  sparse_stats_ = {algorithm, entries, result_entries, bytes_sent};
}

Status CommunicatorImpl::sparse_allreduce(const SparseJob& job) {
  const Turn turn(asked_);
  return with_memory([&, this] { return sparse_.exchange(job); });
}

Status SparseSums::exchange(const SparseJob& job) {
  ++comm_.calls_;
  const Status valid = job.trouble.ok() ? look_through(job) : job.trouble;
  Agreement agreement(comm_.size_, 0);
  agreement.state(comm_.rank_, job.in, job.op, form_of(job), valid.ok());
  if (!job.trouble.ok()) agreement.withdraw(comm_.rank_, job.trouble.code() == Code::invalid_argument);
  if (comm_.size_ > 1) HEDDLE_TRY(comm_.part(comm_.run_job(agreement_job(agreement))));
  HEDDLE_TRY(agreement.check(valid));
  if (job.in.dimension == 0) {
    // Where the result goes may be null here, and not there: it says nothing of what the others do.
    comm_.note_sparse("none", 0, 0, 0);
    return deliver(job, {});
  }
  const Result<Profile> known = profile_for(job);
  if (!known.ok()) return known.status();
  const Profile& profile = known.value();
  HEDDLE_TRY(learn_node_memory());
  if (node_memory_ != nullptr) node_memory_->begin();
  SparseCall call{job.in.dimension, agreement.total(), job.in.value_type};
  call.form = form_of(job);
  call.may_be_dense = job.op == Op::sum && job.has_vector();
  call.handed = node_memory_ != nullptr;
  call.may_be_bitmaps = may_be_bitmaps(job);
  const SparseChoice& choice = planner_.choose(comm_.size_, call, profile.distinct());
  if (choice.bitmaps) {
    bool served = false;
    Status status = run_bitmaps(job, agreement, &served);
    if (served || !status.ok()) return status;
  }
  return choice.dense ? run_dense(job, agreement) : run_streams(job, agreement, profile, choice);
}

// Whether the ranks of this one node can map each other's memory: tried once, by all.
Status SparseSums::learn_node_memory() {
  if (node_memory_known_) return {};
  node_memory_known_ = true;
  if (comm_.topology().nodes() > 1 || comm_.size_ == 1) return {};
  auto memory = std::make_unique<HeapMemory>(comm_.connections_->process->heap, comm_.size_);
  constexpr std::uint64_t kMark = 0x6864646c'6d656d00ULL;
  struct Shown {
    std::uint64_t is_there;
    NodePlace place;
  };
  std::vector<Shown> all(static_cast<std::size_t>(comm_.size_));
  Shown& own = all[static_cast<std::size_t>(comm_.rank_)];
  Buffer trial(memory.get());
  if (trial.grow(sizeof kMark)) {
    const std::uint64_t mark = kMark + static_cast<std::uint64_t>(comm_.rank_);
    std::memcpy(trial.data(), &mark, sizeof mark);
    own.is_there = memory->place_of(trial.data(), sizeof mark, &own.place) ? 1 : 0;
  }
  const Shown mine = own;
  HEDDLE_TRY(comm_.part(comm_.gather(&mine, all.data(), sizeof mine)));
  std::uint64_t reached = 1;
  for (int rank = 0; rank < comm_.size_ && reached != 0; ++rank) {
    const Shown& shown = all[static_cast<std::size_t>(rank)];
    std::uint64_t mark = 0;
    const std::byte* there = rank == comm_.rank_   ? trial.data()
                             : shown.is_there != 0 ? memory->at(rank, shown.place)
                                                   : nullptr;
    if (there != nullptr) std::memcpy(&mark, there, sizeof mark);
    if (mark != kMark + static_cast<std::uint64_t>(rank)) reached = 0;
  }
  // The sum is a barrier as well: the trial's memory may go afterwards.
  HEDDLE_TRY(comm_.part(comm_.allreduce(&reached, &reached, 1, DType::u64, Op::min)));
  if (reached != 0) node_memory_ = std::move(memory);
  return {};
}

// From the call before, or by samples, now that all agree on the dimension: of the first call, and where the
// entries of one call are elsewhere than those of the one before, as those of several vectors of the same
// dimension may be.
Result<Profile> SparseSums::profile_for(const SparseJob& job) {
  if (comm_.size_ == 1) return Profile();
  const auto known = profiles_.find(job.in.dimension);
  if (known != profiles_.end() && !known->second.moves()) return known->second;
  Agreement samples(comm_.size_, samples_shown(comm_.size_));
  samples.state(comm_.rank_, job.in, job.op, form_of(job), true);
  HEDDLE_TRY(comm_.part(comm_.run_job(agreement_job(samples))));
  Profile sampled = Profile::of_samples(samples);
  if (known == profiles_.end()) {
    if (profiles_.size() >= kMostProfiles) profiles_.clear();
    profiles_.emplace(job.in.dimension, sampled);
  }
  return sampled;
}

void SparseSums::learn(std::span<const SparseView> parts, std::uint64_t total, std::uint64_t dimension) {
  const auto known = profiles_.find(dimension);
  if (known != profiles_.end())
    known->second = Profile::of_result(parts, total, dimension).after(known->second);
}

StreamExecution& SparseSums::streams_of(const Choice& choice) {
  const std::shared_ptr<const Schedule> schedule = comm_.plans_.schedule(choice, 0);
  return *streams_.get(
      schedule.get(), [&] { return std::make_unique<StreamExecution>(schedule, comm_.connections_->ports); });
}

Status SparseSums::run_streams(const SparseJob& job, const Agreement& agreement, const Profile& profile,
                               const SparseChoice& choice) {
  StreamExecution& streams = streams_of(choice.streams);
  HEDDLE_TRY(comm_.free_sequence());
  StreamBinding binding{job.in,
                        job.op,
                        profile.cuts(job.in.dimension, streams.schedule().chunks),
                        agreement.total(),
                        comm_.next_sequence(),
                        node_memory_.get(),
                        fold_threads_.get()};
  HEDDLE_TRY(streams.start(std::move(binding)));
  HEDDLE_TRY(comm_.complete(streams));
  if (node_memory_) {
    HEDDLE_TRY(comm_.all_still_lend());
    // Whoever leaves may give its memory back: by then all must have mapped what they were handed.
    HEDDLE_TRY(comm_.part(comm_.barrier()));
  }
  const std::vector<SparseView> parts = streams.result();
  learn(parts, agreement.total(), job.in.dimension);
  comm_.note_sparse(choice.streams.algorithm->name, agreement.total(), count_of(parts), streams.bytes_sent());
  return deliver(job, parts);
}

Status SparseSums::run_dense(const SparseJob& job, const Agreement& agreement) {
  const std::size_t width = dtype_size(job.in.value_type);
  void* dense = job.dense;
  if (job.there != nullptr) {
    // Where there is no image the others wait in vain.
    const Result<void*> image = job.in_place ? job.there->load() : job.there->image();
    if (!image.ok()) return comm_.fail(image.status());
    dense = image.value();
  }
  if (!job.in_place) scatter(std::span(&job.in, 1), dense, job.in.dimension * width, false);
  comm_.note_sparse("dense", agreement.total(), 0, 0);
  HEDDLE_TRY(comm_.part(comm_.run_job({Collective::allreduce, dense, dense, job.in.dimension, width,
                                       comm_.folds_.of(job.in.value_type, job.op, job.in.dimension), 0})));
  if (job.there != nullptr) job.there->store();
  return {};
}

}  // namespace heddle
