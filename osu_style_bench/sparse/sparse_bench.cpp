#include "sparse/sparse_bench.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "common/pacing.hpp"
#include "common/stats.hpp"
#include "sparse/bandwidth.hpp"

namespace heddle::bench {
namespace {

constexpr double kSampleSeconds = 4e-3;
constexpr int kLeastRounds = 9;
constexpr int kLeastHostRounds = 6;  // with fewer no interval of the median covers 95%
constexpr int kResamples = 2000;
constexpr double kMicro = 1e6;
constexpr std::size_t kDenseMemory = std::size_t{256} << 20;

// Of each of the two pools of dense vectors: what it is given is equal on all ranks.
std::size_t pool_memory(const Job& job) {
  return affordable_memory(job, kDenseMemory) / 2;
}

BufferPool::Source source_of(Device* device) {
  return device != nullptr ? device->source() : BufferPool::Source{};
}

void finish(Series& series, std::vector<double> samples, long calls) {
  series.median_us = median(samples);
  series.interval_us = median_interval(samples);
  series.samples_us = std::move(samples);
  series.calls_per_sample = calls;
}

Ratio ratio_of(std::span<const double> other, std::span<const double> sparse, std::size_t seed) {
  const std::vector<double> ratios =
      bootstrap_ratios(other, sparse, kResamples, seed, block_length(other, sparse));
  return {median(other) / median(sparse), central_interval(ratios)};
}

}  // namespace

std::vector<int> order_of_sides(int sides, int round) {
  std::vector<int> order;
  for (int turn = 0; turn < sides; ++turn)
    order.push_back((round + turn) % sides);
  // One way round, then the other: of three sides each follows each of the others as often.
  if (sides > 2 && round / sides % 2 == 1) std::swap(order[1], order[2]);
  return order;
}

std::size_t least_sparse_memory(const SparseOptions& options, int ranks) {
  const std::size_t bytes = options.dimension * size_of(options.dtype);
  const double densest = *std::max_element(options.densities.begin(), options.densities.end());
  const std::size_t entries = options.entries(densest);
  const std::size_t result = std::min(entries * static_cast<std::size_t>(ranks), options.dimension);
  const std::size_t pair = sizeof(std::uint32_t) + size_of(options.dtype);
  // This rank's vector, the sum that is expected, and the sum to be compared with it, besides the buffers.
  return 2 * BufferPool::least_size(bytes) + 3 * bytes + 2 * (entries + result) * pair;
}

struct SparseBench::Plan {
  int rounds = 0;
  int host_every = 0;  // rounds from one that has the host in it to the next; 0: never
  long calls[kSides] = {};
};

SparseBench::SparseBench(const Job& job, const SparseOptions& options, heddle_comm_t comm, Side& dense,
                         Side* host, Device* device)
    : job_(job),
      options_(options),
      comm_(comm),
      dense_(dense),
      host_(host),
      device_(device),
      bytes_(options.dimension * size_of(options.dtype)),
      streams_sent_(streams_are_sent(job, comm)),
      memory_(pool_memory(job)),
      send_(memory_, bytes_, options.dtype, source_of(device)),
      receive_(memory_, bytes_, options.dtype, source_of(device)) {}

void SparseBench::check(const char* what, heddle_status status) const {
  if (status != HEDDLE_OK)
    job_.abort(fmt::format("{}: {}: {}", what, heddle_status_name(status), heddle_last_error()));
}

void SparseBench::set_vectors(std::size_t entries) {
  const auto indices = draw_indices(options_.pattern, options_.dimension, entries, job_.rank());
  in_.clear();
  out_.clear();
  at_ = 0;
  const std::size_t pair = sizeof(std::uint32_t) + size_of(options_.dtype);
  // Of which what is given and what comes out have a pool's memory each, as dense vectors do.
  const std::size_t longest = std::min(entries * static_cast<std::size_t>(job_.size()), options_.dimension);
  const std::size_t copies = BufferPool::count_in(memory_, longest * pair);
  for (std::size_t i = 0; i < copies; ++i) {
    in_.push_back(std::make_unique<SparseArrays>(options_, device_));
    in_.back()->set_entries(indices, job_.rank());
    out_.push_back(std::make_unique<SparseArrays>(options_, device_));
  }
  mine_.assign(bytes_, std::byte{0});
  add_entries(options_.dtype, indices, job_.rank(), mine_.data());
  for (std::size_t i = 0; i < send_.count(); ++i)
    send_.put(send_.next(), mine_.data(), bytes_);
}

// ---- Calls

void SparseBench::call_sparse() {
  const heddle_sparse& in = in_[at_]->vector;
  SparseArrays& out = *out_[at_];
  at_ = at_ + 1 == in_.size() ? 0 : at_ + 1;
  if (options_.api == SparseApi::sparse) {
    last_out_ = &out;
    return check("heddle_sparse_allreduce", heddle_sparse_allreduce(&in, &out.vector, HEDDLE_SUM, comm_));
  }
  last_ = receive_.next();
  check("heddle_sparse_allreduce_dense", heddle_sparse_allreduce_dense(&in, last_, HEDDLE_SUM, comm_));
}

void SparseBench::call(Who who) {
  if (who == kSparse) return call_sparse();
  Side& side = who == kDense ? dense_ : *host_;
  last_ = receive_.next();
  side.allreduce(send_.next(), last_, options_.dimension);
}

void SparseBench::call_in_place(Who who, void* buffer) {
  if (who == kSparse) {
    const heddle_dtype type = options_.dtype == Dtype::float64 ? HEDDLE_FLOAT64 : HEDDLE_FLOAT32;
    check("heddle_sparse_allreduce_in_place",
          heddle_sparse_allreduce_in_place(buffer, options_.dimension, type, comm_));
  } else {
    Side& side = who == kDense ? dense_ : *host_;
    side.allreduce(side.in_place(), buffer, options_.dimension);
  }
}

// Each call overwrites its buffer, which is filled again before the clock starts; ranks meet in between.
double SparseBench::block_in_place(Who who, long calls) {
  double seconds = 0;
  for (long i = 0; i < calls; ++i) {
    last_ = receive_.next();
    // On the host from a buffer of its own each time, as with --api sparse.
    receive_.put(last_, device_ == nullptr ? send_.next() : mine_.data(), bytes_);
    check("heddle_barrier", heddle_barrier(comm_));
    const double start = now();
    call_in_place(who, last_);
    seconds += now() - start;
  }
  return seconds;
}

// Untimed calls lead in and out: see CollectiveBench::block.
double SparseBench::block(Who who, long calls) {
  if (in_place()) return block_in_place(who, calls);
  call(who);
  const double start = now();
  for (long i = 0; i < calls; ++i)
    call(who);
  const double seconds = now() - start;
  call(who);
  return seconds;
}

// ---- Rounds

// Warms up, and makes of what a call takes how many there will be.
SparseBench::Plan SparseBench::plan() {
  Plan plan;
  double seconds[kSides] = {};  // of a block
  for (const Who who : {kSparse, kDense, kHost}) {
    if (who == kHost && host_ == nullptr) continue;
    WarmUp warm;
    warm.calls = options_.warmup;
    warm.usual = 20;
    warm.seconds = options_.max_seconds / 8;
    const double per_call = warm_up(job_, warm, [&](long n) { return block(who, n); });
    plan.calls[who] = options_.iterations
                          ? std::max((*options_.iterations + options_.rounds - 1) / options_.rounds, 1L)
                          : calls_within(kSampleSeconds, per_call, 1, 1'000'000);
    seconds[who] = static_cast<double>(plan.calls[who] + 2) * per_call;
  }
  plan.rounds =
      options_.iterations
          ? static_cast<int>(std::clamp<long>(*options_.iterations, 6, options_.rounds))
          : static_cast<int>(calls_within(2 * options_.max_seconds, seconds[kSparse] + seconds[kDense],
                                          std::min(kLeastRounds, options_.rounds), options_.rounds));
  if (host_ == nullptr) return plan;
  const long host_rounds = calls_within(options_.max_seconds, seconds[kHost], kLeastHostRounds, plan.rounds);
  plan.host_every = static_cast<int>(plan.rounds / host_rounds);
  return plan;
}

void SparseBench::measure_rounds(SparseRow& row) {
  const Plan plan = this->plan();
  std::vector<double> samples[kSides];
  std::vector<double> beside_host;  // the sparse samples of rounds that have the host in them
  int rounds_of[2] = {};            // without the host and with it: both go through their own orders
  for (int round = 0; round < plan.rounds; ++round) {
    const bool with_host = plan.host_every > 0 && round % plan.host_every == 0;
    const int sides = with_host ? 3 : 2;
    const std::vector<int> order = order_of_sides(sides, rounds_of[with_host ? 1 : 0]++);
    for (const int side : order) {
      const auto who = static_cast<Who>(side);
      samples[who].push_back(block(who, plan.calls[who]) / static_cast<double>(plan.calls[who]) * kMicro);
    }
  }
  for (std::vector<double>& series : samples)
    if (!series.empty()) job_.maximum(series);
  for (std::size_t i = 0; i < samples[kHost].size(); ++i)
    beside_host.push_back(samples[kSparse][i * static_cast<std::size_t>(plan.host_every)]);
  row.dense_ratio = ratio_of(samples[kDense], samples[kSparse], row.entries);
  if (host_ != nullptr) {
    row.host_ratio = ratio_of(samples[kHost], beside_host, row.entries);
    finish(row.host.emplace(), std::move(samples[kHost]), plan.calls[kHost]);
  }
  finish(row.sparse, std::move(samples[kSparse]), plan.calls[kSparse]);
  finish(row.dense, std::move(samples[kDense]), plan.calls[kDense]);
}

// ---- What came out

std::vector<std::byte> SparseBench::on_host(const void* buffer) const {
  std::vector<std::byte> copy(bytes_);
  receive_.get(copy.data(), buffer, bytes_);
  return copy;
}

bool SparseBench::right(Who who, const std::vector<std::byte>& sum) {
  if (in_place()) {
    block_in_place(who, 1);
  } else {
    call(who);
  }
  if (who == kSparse && options_.api == SparseApi::sparse) return last_out_->same_as(sum.data());
  return on_host(last_) == sum;
}

bool SparseBench::all_right(std::size_t entries) {
  const std::vector<std::byte> sum = expected_sum(options_, entries, job_.size());
  bool good = right(kSparse, sum);
  good = right(kDense, sum) && good;
  if (host_ != nullptr) good = right(kHost, sum) && good;
  return job_.all(good);
}

void SparseBench::take_stats(SparseRow& row, double bytes_per_second) {
  block(kSparse, 1);
  row.result_entries = options_.api == SparseApi::sparse
                           ? last_out_->vector.count
                           : count_nonzero(options_.dtype, on_host(last_).data(), options_.dimension);
  heddle_sparse_stats stats{};
  check("heddle_sparse_get_stats", heddle_sparse_get_stats(comm_, &stats));
  row.algorithm = stats.algorithm == nullptr ? "-" : stats.algorithm;
  row.dense_algorithm = dense_.algorithm(Kind::allreduce, options_.dimension);
  row.pair_bytes =
      pair_bytes_of(row.algorithm, job_.size(), row.entries, row.result_entries, size_of(options_.dtype));
  const double sent = job_.maximum(static_cast<double>(stats.bytes_sent));
  // GPUs send theirs in any case.
  if (sent == 0 || (!streams_sent_ && row.algorithm != "gpu")) return;
  row.bytes_sent = sent;
  if (bytes_per_second > 0) row.wire_share = sent / (row.sparse.median_us / kMicro) / bytes_per_second;
}

SparseRow SparseBench::measure(double percent, double bytes_per_second) {
  SparseRow row;
  row.percent = percent;
  row.entries = options_.entries(percent);
  set_vectors(row.entries);
  block(kSparse, 1);
  // Room for every result, so that none has to grow under the clock.
  if (last_out_ != nullptr)
    for (const auto& out : out_)
      out->make_room(last_out_->vector.count);
  if (options_.validate) row.valid = all_right(row.entries);
  measure_rounds(row);
  take_stats(row, bytes_per_second);
  if (options_.validate) row.valid = all_right(row.entries) && *row.valid;
  return row;
}

}  // namespace heddle::bench
