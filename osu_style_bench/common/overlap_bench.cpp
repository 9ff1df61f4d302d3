#include "common/overlap_bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/check_results.hpp"
#include "common/pacing.hpp"

namespace heddle::bench {
namespace {

constexpr double kMicro = 1e6;
constexpr std::size_t kValues =
    64;  // a unit takes some nanoseconds: the shortest collectives take a microsecond
constexpr long kMostRounds = 200;
constexpr long kLeastRounds = 5;
constexpr int kCorrections = 3;

}  // namespace

double overlap_percent(double pure_us, double compute_us, double overall_us) {
  // The time that both at once save, of the most that they could.
  const double saved = pure_us + compute_us - overall_us;
  return std::clamp(100 * saved / std::max(std::min(pure_us, compute_us), 1e-6), 0.0, 100.0);
}

std::string why_no_overlap(double pure_us, double compute_us, double overall_us) {
  constexpr double kLeastOfLonger = 0.95;
  constexpr double kMostApart = 2;
  const double longer = std::max(pure_us, compute_us);
  if (overall_us < kLeastOfLonger * longer)
    return fmt::format("both at once took {:.3g} us, less than the longer of them alone ({:.3g} us)",
                       overall_us, longer);
  const double times = compute_us / std::max(pure_us, 1e-6);
  if (times < 1 / kMostApart || times > kMostApart)
    return fmt::format("the computation took {:.2g} times as long as the collective, and not 0.5 to 2 times",
                       times);
  return "";
}

Computation::Computation() : values_(kValues, 1.F) {}

void Computation::units(long count) {
  for (long unit = 0; unit < count; ++unit) {
    for (float& value : values_)
      value = value * 0.999F + 0.001F;
    // Or else the compiler finds that nobody reads them.
    asm volatile("" : : "r"(values_.data()) : "memory");
  }
}

void Computation::last(double seconds) {
  long count = 16;
  double took = 0;
  // Until it takes long enough for the clock, and for the core to have come up to speed.
  for (; took < std::min(seconds / 2, 2e-3) || took < 1e-5; count *= 2) {
    const double begin = now();
    units(count);
    took = now() - begin;
    if (took >= std::min(seconds / 2, 2e-3) && took >= 1e-5) break;
  }
  units_ = std::max(std::lround(static_cast<double>(count) * seconds / took), 1L);
}

void Computation::scale(double times) {
  units_ = std::max(std::lround(static_cast<double>(units_) * times), 1L);
}

OverlapBench::OverlapBench(const Job& job, const Options& options, std::size_t memory,
                           const BufferPool::Source& source)
    : job_(job),
      options_(options),
      send_(memory / options.pools(), options.max_bytes, options.dtype, source, options.most_buffers) {
  if (options.pools() == 2)
    receive_.emplace(memory / options.pools(), options.max_bytes, options.dtype, source,
                     options.most_buffers);
}

void OverlapBench::start(Side& side) {
  if (options_.reduces()) {
    side.start_allreduce(send_.next(), receive_->next(), count_);
  } else {
    side.start_bcast(send_.next(), count_, 0);
  }
}

double OverlapBench::alone(Side& side) {
  job_.barrier();
  const double begin = now();
  start(side);
  side.finish();
  return now() - begin;
}

void OverlapBench::run_computation(Side& side, int tests) {
  computation_.run(tests, [&] { static_cast<void>(side.test()); });
}

// All ranks at once: those that share a core must share it here as well.
double OverlapBench::compute(Side& side) {
  job_.barrier();
  const double begin = now();
  run_computation(side, 0);
  return now() - begin;
}

// Cores speed up and slow down, and one run says little: the computation is corrected until it takes what the
// collective's rounds do.
void OverlapBench::make_as_long(Side& side, double per_call) {
  job_.barrier();
  computation_.last(per_call);
  const long rounds = calls_within(options_.max_seconds / 4, 2 * kCorrections * per_call, kLeastRounds, 21);
  for (int correction = 0; correction < kCorrections; ++correction) {
    std::vector<double> pure;
    std::vector<double> computed;
    for (long round = 0; round < rounds; ++round) {
      pure.push_back(alone(side));
      computed.push_back(compute(side));
    }
    job_.maximum(pure);
    computation_.scale(median(pure) / std::max(median(computed), 1e-9));
  }
}

bool OverlapBench::right(Side& side, std::size_t bytes) {
  return collective_is_right(job_, side, options_.kind, options_.dtype, bytes, send_,
                             receive_ ? &*receive_ : nullptr);
}

OverlapRow OverlapBench::measure(Side& side, std::size_t bytes) {
  send_.cut(bytes, options_.warm_buffers);
  if (receive_) receive_->cut(bytes, options_.warm_buffers);
  count_ = bytes / size_of(options_.dtype);
  OverlapRow row;
  row.bytes = bytes;
  row.buffers = send_.count();
  if (options_.validate) row.valid = right(side, bytes);

  const auto run = [&](long calls) {
    double seconds = 0;
    for (long i = 0; i < calls; ++i)
      seconds += alone(side);
    return seconds;
  };
  const double per_call =
      warm_up(job_, {options_.warmup, bytes > 8192 ? 20 : 200, options_.max_seconds / 8}, run);
  make_as_long(side, per_call);

  const long rounds = options_.iterations.value_or(
      calls_within(3 * options_.max_seconds, 4 * per_call, kLeastRounds, kMostRounds));
  std::vector<double> pure;
  std::vector<double> computed;
  std::vector<double> both;
  for (long round = 0; round < rounds; ++round) {
    pure.push_back(alone(side) * kMicro);
    computed.push_back(compute(side) * kMicro);
    job_.barrier();
    const double begin = now();
    start(side);
    run_computation(side, options_.tests);
    side.finish();
    both.push_back((now() - begin) * kMicro);
  }
  for (std::vector<double>* samples : {&pure, &computed, &both})
    job_.maximum(*samples);
  row.rounds = rounds;
  row.pure_us = median(pure);
  row.compute_us = median(computed);
  row.overall_us = median(both);
  row.why_not = why_no_overlap(row.pure_us, row.compute_us, row.overall_us);
  if (row.why_not.empty()) row.overlap_percent = overlap_percent(row.pure_us, row.compute_us, row.overall_us);
  if (options_.validate) row.valid = right(side, bytes) && *row.valid;
  return row;
}

}  // namespace heddle::bench
