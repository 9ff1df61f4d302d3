// Allreduce that may lose precision: through a codec, or of some entries, with error feedback.
#include "comm/compressed_sums.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/hash.hpp"
#include "comm/communicator_impl.hpp"
#include "comm/complete.hpp"
#include "comm/sparse_sums.hpp"
#include "compress/select.hpp"
#include "device/local_codes.hpp"
#include "engine/kernels/kernels.hpp"

namespace heddle {
namespace {

SparseView view_of(const SelectedEntries& selection, std::size_t dimension) {
  const Indices& indices = selection.indices;
  return {dimension,
          indices.size(),
          indices.is_wide ? IndexType::u64 : IndexType::u32,
          DType::f32,
          indices.is_wide ? static_cast<const void*>(indices.wide.data()) : indices.narrow.data(),
          selection.values.data()};
}

// Coded sums arrive in the caller's memory, which is the caller's own again when memory has run out.
class Abandoning {
 public:
  explicit Abandoning(MessageRun& run) : run_(run) {}
  Abandoning(const Abandoning&) = delete;
  Abandoning& operator=(const Abandoning&) = delete;
  ~Abandoning() {
    if (run_.active()) run_.abandon();
  }

 private:
  MessageRun& run_;
};

// Of all that is equal on the ranks.
std::uint64_t hash_of(std::uint64_t count, const Compression& how) {
  std::uint64_t hash = count;
  std::uint64_t fraction = 0;
  std::memcpy(&fraction, &how.fraction, sizeof fraction);
  for (const std::uint64_t part :
       {static_cast<std::uint64_t>(how.method), static_cast<std::uint64_t>(how.codec.codec),
        std::uint64_t{how.codec.bucket}, how.codec.seed, fraction})
    hash = mix64(hash ^ part);
  return hash;
}

std::string text_of(const Compression& how) {
  return compression_name(how) + ", seed " + std::to_string(how.codec.seed);
}

// What this rank alone knows to be wrong, but for the stream.
Status check_arguments(const CodedSparseJob& job) {
  HEDDLE_TRY(job.trouble);
  if (job.how.method != Compression::Method::codec)
    return Status(Code::invalid_argument, compression_name(job.how) +
                                              " leaves values out, and the sum of sparse streams has all: a "
                                              "codec is wanted here; select before");
  if (job.in.value_type != DType::f32)
    return Status(Code::invalid_argument,
                  std::string("coded sums are of float32, not ") + dtype_name(job.in.value_type));
  if (job.residual != nullptr && job.residual->size() != job.in.dimension)
    return Status(Code::invalid_argument, "the residual has " + std::to_string(job.residual->size()) +
                                              " values and the dimension is " +
                                              std::to_string(job.in.dimension));
  return {};
}

}  // namespace

// 0.07 is a little more than seven hundredths, and so is 100 times that: what is an integer but for such
// noise is that integer.
std::size_t entries_wanted(const CompressedJob& job) {
  constexpr double kNoise = 4 * std::numeric_limits<double>::epsilon();
  const double product = job.how.fraction * static_cast<double>(job.count);
  const double nearest = std::round(product);
  const bool is_integer = std::abs(product - nearest) <= kNoise * nearest;
  return std::min(job.count, static_cast<std::size_t>(is_integer ? nearest : std::ceil(product)));
}

std::uint64_t agreement_number(const CompressedJob& job) {
  return hash_of(job.count, job.how);
}

// Instead of the hash, which is odd.
constexpr std::uint64_t kUnready = 0;
constexpr std::uint64_t kRefused = 2;

// A rank that codes in another way, or has another length, would misread what it is sent.
Status CompressedSums::agree_on(const CompressedJob& job) {
  const std::uint64_t asked = hash_of(job.count, job.how) | 1;
  std::vector<std::uint64_t> all(static_cast<std::size_t>(comm_.size_));
  const std::uint64_t trouble = job.trouble.code() == Code::invalid_argument ? kRefused : kUnready;
  all[static_cast<std::size_t>(comm_.rank_)] = job.trouble.ok() ? asked : trouble;
  if (comm_.size_ > 1) {
    ++comm_.calls_;
    HEDDLE_TRY(comm_.part(
        comm_.run_job({Collective::allreduce, all.data(), all.data(), all.size(), sizeof(std::uint64_t),
                       fold_kernel(DType::u64, Op::sum), 0, kCompressedAgreement})));
  }
  if (!job.trouble.ok()) return job.trouble;
  const auto refused = std::ranges::find(all, kRefused);
  if (refused != all.end())
    return Status(Code::invalid_argument,
                  "rank " + std::to_string(refused - all.begin()) +
                      " passed arguments that are refused, and says why there; nothing was exchanged");
  const auto troubled = std::ranges::find(all, kUnready);
  if (troubled != all.end())
    return Status(Code::peer_failed, "rank " + std::to_string(troubled - all.begin()) +
                                         " could not make its part of the sum ready, and says why there");
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] != all[0])
      return Status(
          Code::invalid_argument,
          "rank " + std::to_string(rank) +
              " asked for another compression, count or seed than rank 0 (this rank: " + text_of(job.how) +
              ", count " + std::to_string(job.count) + "); nothing was exchanged");
  }
  return {};
}

// Programs of MPI's may have their vectors at any address, which what follows may not: those that are not at
// a float's are copied.
Status CompressedSums::sum(const CompressedJob& job) {
  const auto is_loose = [](const void* vector) {
    return reinterpret_cast<std::uintptr_t>(vector) % alignof(float) != 0;
  };
  if (job.count == 0 || (!is_loose(job.in) && !is_loose(job.out))) return sum_aligned(job);
  CompressedJob aligned = job;
  std::vector<float> in;
  std::vector<float> out;
  const std::size_t bytes = job.count * sizeof(float);
  if (is_loose(job.in)) {
    in.resize(job.count);
    std::memcpy(in.data(), static_cast<const void*>(job.in), bytes);
    aligned.in = in.data();
  }
  if (is_loose(job.out)) {
    out.resize(job.count);
    aligned.out = out.data();
  }
  HEDDLE_TRY(sum_aligned(aligned));
  if (is_loose(job.out)) std::memcpy(static_cast<void*>(job.out), out.data(), bytes);
  return {};
}

// Of what all ranks draw alike in the next call; then of what this one draws.
std::uint64_t CompressedSums::call_seed(std::uint64_t seed) const {
  return mix64(seed ^ mix64(calls_));
}
std::uint64_t CompressedSums::codec_seed(std::uint64_t seed) const {
  return mix64(call_seed(seed) + static_cast<std::uint64_t>(comm_.rank_));
}

Status CompressedSums::sum_aligned(const CompressedJob& job) {
  if (comm_.size_ > 1 && !job.agreed) HEDDLE_TRY(agree_on(job));
  HEDDLE_TRY(job.trouble);
  const std::uint64_t seed = call_seed(job.how.codec.seed);
  const std::uint64_t own_seed = codec_seed(job.how.codec.seed);
  note();
  if (job.largest != nullptr) return exchange_selected(job, job.largest->take());
  if (job.codes != nullptr) {
    job.codes->keep();
    return run_coded(job, job.codes->held(), own_seed);
  }
  const float* in = job.in;
  if (job.residual != nullptr) {
    compensated_.resize(job.count);
    job.residual->compensate(job.in, compensated_.data());
    in = compensated_.data();
  }
  switch (job.how.method) {
    case Compression::Method::codec:
      return run_coded(job, in, own_seed);
    case Compression::Method::random_k:
      return run_random(job, in, seed);
    case Compression::Method::top_k:
    case Compression::Method::top_k_sampled:
      break;
  }
  return run_selected(job, in, seed);
}

// By split_allgather, where each value is coded twice (up to 32 ranks) and no two ranks code the same sum;
// across nodes with several ranks each by as many leaders as there can be, or for streams, which go by
// messages alone, by one.
Choice CompressedSums::coding(bool of_streams) const {
  const bool flat = comm_.topology().nodes() == 1 || comm_.topology().nodes() == comm_.size_;
  const char* const name = flat ? "split_allgather" : of_streams ? "leaders" : "two_level_split";
  return {find_algorithm(Collective::allreduce, name), {0, 2, 2, UINT32_MAX}, 0};
}

CodedRun& CompressedSums::coded_run() {
  const std::shared_ptr<const Schedule> schedule = comm_.plans_.schedule(coding(false), 0);
  return *coded_.get(schedule.get(),
                     [&] { return std::make_unique<CodedRun>(schedule, comm_.connections_->ports); });
}

Status CompressedSums::run_coded(const CompressedJob& job, const float* in, std::uint64_t seed) {
  // A team takes one operation at a time.
  if (!comm_.turns_.empty()) HEDDLE_TRY(comm_.finish_team_requests());
  CodedRun& run = coded_run();
  CodedBinding binding{in, job.out, job.count, job.how.codec, nullptr, 0};
  binding.settings.seed = seed;
  if (job.residual != nullptr) {
    lost_.assign(job.count, 0.0F);
    binding.lost = lost_.data();
  }
  if (job.codes != nullptr) {
    binding.contributions = job.codes->contributions();
    binding.lost = job.codes->lost();
  }
  if (job.there != nullptr) binding.codes = job.there->codes();
  HEDDLE_TRY(comm_.free_sequence());
  binding.sequence = comm_.next_sequence();
  const Abandoning guard(run);
  HEDDLE_TRY(run.start(binding));
  HEDDLE_TRY(comm_.complete(run));
  if (job.residual != nullptr) std::ranges::copy(lost_, job.residual->values().begin());
  if (job.codes != nullptr) job.codes->settle();
  if (job.there != nullptr) job.there->put_codes();
  comm_.note_sparse(coding(false).algorithm->name, 0, 0, run.bytes_sent());
  return {};
}

Status CompressedSums::sum_streams(const CodedSparseJob& job) {
  ++comm_.calls_;
  const Status arguments = check_arguments(job);
  const Status valid = arguments.ok() ? check_sparse(job.in) : arguments;
  Agreement agreement(comm_.size_, 0);
  agreement.state(comm_.rank_, job.in, Op::sum, SparseForm::coded, valid.ok(),
                  hash_of(job.in.dimension, job.how));
  if (!arguments.ok()) agreement.withdraw(comm_.rank_, arguments.code() == Code::invalid_argument);
  if (comm_.size_ > 1) HEDDLE_TRY(comm_.part(comm_.run_job(agreement_job(agreement))));
  HEDDLE_TRY(agreement.check(valid, [&] { return text_of(job.how); }));
  const std::uint64_t seed = codec_seed(job.how.codec.seed);
  note();
  const Choice choice = coding(true);
  const std::shared_ptr<const Schedule> schedule = comm_.plans_.schedule(choice, 0);
  const std::unique_ptr<CodedStreams>& run = coded_streams_.get(
      schedule.get(), [&] { return std::make_unique<CodedStreams>(schedule, comm_.connections_->ports); });
  CodedStreamsBinding binding{job.in, job.out, comm_.rank_, job.how.codec, nullptr, agreement.total(), 0};
  binding.settings.seed = seed;
  if (job.residual != nullptr) {
    lost_.assign(job.in.dimension, 0.0F);
    binding.lost = lost_.data();
  }
  HEDDLE_TRY(comm_.free_sequence());
  binding.sequence = comm_.next_sequence();
  const Abandoning guard(*run);
  HEDDLE_TRY(run->start(binding));
  HEDDLE_TRY(comm_.complete(*run));
  if (job.residual != nullptr) job.residual->add(lost_);
  comm_.note_sparse(choice.algorithm->name, agreement.total(), 0, run->bytes_sent());
  return {};
}

Status CompressedSums::run_selected(const CompressedJob& job, const float* in, std::uint64_t seed) {
  const std::size_t wanted = entries_wanted(job);
  const SelectedEntries selection = job.how.method == Compression::Method::top_k
                                        ? top_k(in, job.count, wanted)
                                        : top_k_sampled(in, job.count, wanted, seed);
  // Before the sum it may turn out that it does not take place: then nothing has been sent, nor is anything
  // kept.
  HEDDLE_TRY(exchange_selected(job, view_of(selection, job.count)));
  return job.residual != nullptr ? job.residual->keep(in, selection.indices) : Status();
}

// What the streams carry they carry exactly: nothing is lost on the way.
Status CompressedSums::exchange_selected(const CompressedJob& job, const Result<SparseView>& entries) {
  SparseJob sparse;
  sparse.in = {job.count, 0, IndexType::u32, DType::f32, nullptr, nullptr};
  if (entries.ok()) sparse.in = entries.value();
  sparse.trouble = entries.status();
  sparse.dense = job.there == nullptr ? job.out : nullptr;
  sparse.there = job.there;
  return comm_.sparse_allreduce(sparse);
}

// All ranks draw the same positions: what is there is a short dense vector.
Status CompressedSums::run_random(const CompressedJob& job, const float* in, std::uint64_t seed) {
  const Indices indices = random_k(job.count, entries_wanted(job), seed);
  std::vector<float> values = gather(in, indices);
  HEDDLE_TRY(comm_.part(comm_.allreduce(values.data(), values.data(), values.size(), DType::f32, Op::sum)));
  if (job.residual != nullptr) HEDDLE_TRY(job.residual->keep(in, indices));
  if (job.count > 0) std::memset(job.out, 0, job.count * sizeof(float));
  for (std::size_t i = 0; i < values.size(); ++i)
    job.out[indices[i]] = values[i];
  comm_.note_sparse("random_k", values.size() * static_cast<std::size_t>(comm_.size_), values.size(), 0);
  return {};
}

// ---- The communicator's calls

Status CommunicatorImpl::compressed_allreduce(const CompressedJob& job) {
  const Turn turn(asked_);
  return with_memory([&, this] { return compressed_.sum(job); });
}

Status CommunicatorImpl::coded_sparse_allreduce(const CodedSparseJob& job) {
  const Turn turn(asked_);
  return with_memory([&, this] { return compressed_.sum_streams(job); });
}

CodedPlan CommunicatorImpl::coded_plan(std::size_t count, const CodecSettings& settings) {
  const Turn turn(asked_);
  return compressed_.plan(count, settings);
}

}  // namespace heddle
