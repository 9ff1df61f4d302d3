#include "common/collective_bench.hpp"

#include <algorithm>

#include "common/check_results.hpp"
#include "common/pacing.hpp"

namespace heddle::bench {
namespace {

constexpr double kSampleSeconds = 4e-3;  // much longer than the clock's resolution and a rank's wake-up
constexpr double kLeadSeconds = 1e-3;
constexpr double kMostLeadSeconds = 20e-3;  // a cycle of large buffers would take longer than what is timed
constexpr long kMostLeadIn = 10'000;
constexpr int kLeastRounds = 9;
constexpr int kResamples = 2000;
constexpr std::size_t kLargeMessage = 8192;  // from here on OSU makes fewer calls
constexpr double kMicro = 1e6;

WarmUp warm_up_plan(const Options& options, std::size_t bytes) {
  WarmUp plan;
  plan.calls = options.warmup;
  plan.usual = bytes > kLargeMessage ? 20 : 200;
  plan.seconds = options.max_seconds / 8;
  return plan;
}

void finish_series(Series& series, const std::vector<double>& samples) {
  series.samples_us = samples;
  series.median_us = median(samples);
  series.interval_us = median_interval(samples);
}

}  // namespace

CollectiveBench::CollectiveBench(const Job& job, const Options& options, std::size_t memory,
                                 const BufferPool::Source& source)
    : job_(job),
      options_(options),
      send_(share_memory(options, memory, job.size()).send, options.send_bytes(options.max_bytes, job.size()),
            options.dtype, source, options.most_buffers) {
  if (options.pools() == 2)
    receive_.emplace(share_memory(options, memory, job.size()).receive,
                     options.receive_bytes(options.max_bytes, job.size()), options.dtype, source,
                     options.most_buffers);
}

void CollectiveBench::cut(std::size_t bytes) {
  send_.cut(options_.send_bytes(bytes, job_.size()), options_.warm_buffers);
  if (receive_) receive_->cut(options_.receive_bytes(bytes, job_.size()), options_.warm_buffers);
  count_ = bytes / size_of(options_.dtype);
}

std::size_t CollectiveBench::buffers() const {
  return receive_ ? std::min(send_.count(), receive_->count()) : send_.count();
}

void CollectiveBench::call(Side& side) {
  if (options_.kind == Kind::barrier) {
    side.barrier();
  } else if (options_.kind == Kind::bcast) {
    side.bcast(send_.next(), count_, root_);
  } else if (options_.kind == Kind::reduce) {
    side.reduce(send_.next(), job_.rank() == root_ ? receive_->next() : nullptr, count_, root_);
  } else {
    const void* const from = options_.in_place ? side.in_place() : send_.next();
    void* const to = options_.in_place ? send_.next() : receive_->next();
    if (options_.kind == Kind::allgather) {
      side.allgather(from, to, count_);
    } else {
      side.allreduce(from, to, count_);
    }
  }
}

// Untimed calls lead in and out. After `lead_in` of them the caches hold what this side left there, not the
// other one, and no rank is still busy with that; and until all ranks have stopped their clocks none can
// leave those at the end, so that no rank goes on to something that takes a core from another's measurement.
// A bcast or reduce needs one of every root for that, also where those that are timed have one root: after as
// many as there are ranks that is rank 0 again.
double CollectiveBench::block(Side& side, long calls, long lead_in) {
  const bool moves = options_.has_root();
  const auto one = [&](bool moving) {
    call(side);
    if (moving) root_ = root_ + 1 == job_.size() ? 0 : root_ + 1;
  };
  for (long i = least_calls(); i < lead_in; ++i)
    one(moves && !options_.fixed_root);
  for (long i = 0; i < least_calls(); ++i)
    one(moves);
  const double start = now();
  for (long i = 0; i < calls; ++i)
    one(moves && !options_.fixed_root);
  const double seconds = now() - start;
  for (long i = 0; i < least_calls(); ++i)
    one(moves);
  return seconds;
}

// All roots take part in every sample of a bcast or reduce, and in what leads in and out.
long CollectiveBench::least_calls() const {
  return options_.has_root() ? job_.size() : 1;
}

long CollectiveBench::calls_to_lead_in(double seconds_per_call) const {
  const long least = least_calls();
  const long wanted =
      std::max(calls_within(kLeadSeconds, seconds_per_call, 1, kMostLeadIn), static_cast<long>(buffers()));
  const long calls = calls_within(kMostLeadSeconds, seconds_per_call, 1, wanted);
  return (calls + least - 1) / least * least;
}

long CollectiveBench::calls_per_sample(double seconds_per_call) const {
  const long least = least_calls();
  if (options_.iterations) {
    const long each = std::max((*options_.iterations + options_.rounds - 1) / options_.rounds, 1L);
    return (each + least - 1) / least * least;
  }
  const long calls = calls_within(kSampleSeconds, seconds_per_call, least, 1'000'000);
  return calls / least * least;
}

int CollectiveBench::rounds_for(double seconds_per_round) const {
  if (options_.iterations)
    return static_cast<int>(std::min<long>(options_.rounds, std::max(*options_.iterations, 6L)));
  return static_cast<int>(calls_within(2 * options_.max_seconds, seconds_per_round,
                                       std::min(kLeastRounds, options_.rounds), options_.rounds));
}

bool CollectiveBench::right(Side& side, std::size_t bytes) {
  return collective_is_right(job_, side, options_.kind, options_.dtype, bytes, send_,
                             receive_ ? &*receive_ : nullptr);
}

PlainRow CollectiveBench::measure(Side& side, std::size_t bytes) {
  cut(bytes);
  root_ = 0;
  PlainRow row;
  row.bytes = bytes;
  row.buffers = buffers();
  if (options_.validate) row.valid = right(side, bytes);
  double timed = 0;
  const auto run = [&](long calls) {
    const double begin = now();
    for (long i = 0; i < calls; ++i) {
      const double start = now();
      call(side);
      timed += now() - start;
      job_.barrier();
    }
    return now() - begin;
  };
  const double per_call = warm_up(job_, warm_up_plan(options_, bytes), run);
  const long usual = bytes > kLargeMessage ? 100 : 1000;
  row.iterations = options_.iterations.value_or(calls_within(options_.max_seconds, per_call, 5, usual));
  timed = 0;
  run(row.iterations);
  const double mine = timed / static_cast<double>(row.iterations) * kMicro;
  double extremes[2] = {mine, -mine};
  double total[1] = {mine};
  job_.maximum(extremes);
  job_.sum(total);
  row.average = total[0] / job_.size();
  row.maximum = extremes[0];
  row.minimum = -extremes[1];
  row.algorithm = algorithm_of(side);
  if (options_.validate) row.valid = right(side, bytes) && *row.valid;
  return row;
}

// What sides know is what serves host memory.
std::string CollectiveBench::algorithm_of(Side& side) const {
  return options_.place == Place::host ? side.algorithm(options_.kind, count_) : "-";
}

ComparedRow CollectiveBench::compare(Side& host, Side& heddle, std::size_t bytes) {
  cut(bytes);
  root_ = 0;
  ComparedRow row;
  row.bytes = bytes;
  row.buffers = buffers();
  if (options_.validate) row.valid = right(host, bytes) && right(heddle, bytes);
  Side* const sides[2] = {&host, &heddle};
  long calls[2] = {};
  long lead_in[2] = {};
  double round_seconds = 0;
  for (int s = 0; s < 2; ++s) {
    const double per_call = warm_up(job_, warm_up_plan(options_, bytes),
                                    [&](long n) { return block(*sides[s], n, least_calls()); });
    calls[s] = calls_per_sample(per_call);
    lead_in[s] = calls_to_lead_in(per_call);
    round_seconds += static_cast<double>(lead_in[s] + calls[s] + least_calls()) * per_call;
  }
  const int rounds = rounds_for(round_seconds);
  std::vector<double> samples[2];
  for (int round = 0; round < rounds; ++round) {
    for (int turn = 0; turn < 2; ++turn) {
      const int s = (round + turn) % 2;
      samples[s].push_back(block(*sides[s], calls[s], lead_in[s]) / static_cast<double>(calls[s]) * kMicro);
    }
  }
  for (std::vector<double>& series : samples)
    job_.maximum(series);
  finish_series(row.host, samples[0]);
  finish_series(row.heddle, samples[1]);
  row.host.calls_per_sample = calls[0];
  row.heddle.calls_per_sample = calls[1];
  row.ratio = row.host.median_us / row.heddle.median_us;
  row.bootstrap =
      bootstrap_ratios(samples[0], samples[1], kResamples, bytes, block_length(samples[0], samples[1]));
  row.ratio_interval = central_interval(row.bootstrap);
  row.algorithm = algorithm_of(heddle);
  if (options_.validate) row.valid = right(host, bytes) && right(heddle, bytes) && *row.valid;
  return row;
}

}  // namespace heddle::bench
