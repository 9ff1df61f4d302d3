#include "common/overlap_bench.hpp"

#include <algorithm>

#include "common/check_results.hpp"
#include "common/pacing.hpp"

namespace heddle::bench {
namespace {

constexpr double kMicro = 1e6;
constexpr std::size_t kValues = 1024;  // 4 KiB
constexpr long kMostRounds = 200;
constexpr long kLeastRounds = 5;

}  // namespace

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
  units_ = std::max(static_cast<long>(static_cast<double>(count) * seconds / took), 1L);
}

OverlapBench::OverlapBench(const Job& job, const Options& options, std::size_t memory,
                           const BufferPool::Source& source)
    : job_(job),
      options_(options),
      send_(memory / 2, options.max_bytes, options.dtype, source),
      receive_(memory / 2, options.max_bytes, options.dtype, source) {}

void OverlapBench::start(Side& side) {
  if (options_.reduces()) {
    side.start_allreduce(send_.next(), receive_.next(), count_);
  } else {
    side.start_bcast(send_.next(), count_, 0);
  }
}

bool OverlapBench::right(Side& side, std::size_t bytes) {
  return collective_is_right(job_, side, options_.kind, options_.dtype, bytes, send_, receive_);
}

OverlapRow OverlapBench::measure(Side& side, std::size_t bytes) {
  send_.cut(bytes, options_.warm_buffers);
  receive_.cut(bytes, options_.warm_buffers);
  count_ = bytes / size_of(options_.dtype);
  OverlapRow row;
  row.bytes = bytes;
  if (options_.validate) row.valid = right(side, bytes);

  const auto timed = [&](const auto& body) {
    job_.barrier();
    const double begin = now();
    body();
    return now() - begin;
  };
  const auto alone = [&] {
    return timed([&] {
      start(side);
      side.finish();
    });
  };
  const auto run = [&](long calls) {
    double seconds = 0;
    for (long i = 0; i < calls; ++i)
      seconds += alone();
    return seconds;
  };
  const double per_call =
      warm_up(job_, {options_.warmup, bytes > 8192 ? 20 : 200, options_.max_seconds / 8}, run);
  // On all ranks at once: those that share a core must share it here as well.
  job_.barrier();
  computation_.last(per_call);
  const auto compute = [&](int tests) { computation_.run(tests, [&] { static_cast<void>(side.test()); }); };

  const long rounds = options_.iterations.value_or(
      calls_within(3 * options_.max_seconds, 4 * per_call, kLeastRounds, kMostRounds));
  std::vector<double> pure;
  std::vector<double> computed;
  std::vector<double> both;
  for (long round = 0; round < rounds; ++round) {
    pure.push_back(alone() * kMicro);
    computed.push_back(timed([&] { compute(0); }) * kMicro);
    both.push_back(timed([&] {
                     start(side);
                     compute(options_.tests);
                     side.finish();
                   }) *
                   kMicro);
  }
  for (std::vector<double>* samples : {&pure, &computed, &both})
    job_.maximum(*samples);
  row.rounds = rounds;
  row.pure_us = median(pure);
  row.compute_us = median(computed);
  row.overall_us = median(both);
  row.overlap_percent =
      std::clamp(100 * (1 - (row.overall_us - row.compute_us) / std::max(row.pure_us, 1e-6)), 0.0, 100.0);
  if (options_.validate) row.valid = right(side, bytes) && *row.valid;
  return row;
}

}  // namespace heddle::bench
