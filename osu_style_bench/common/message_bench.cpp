#include "common/message_bench.hpp"

#include <algorithm>
#include <limits>

#include "common/check_results.hpp"
#include "common/pacing.hpp"

namespace heddle::bench {

MessageBench::MessageBench(const Job& job, const Options& options, std::size_t memory,
                           const BufferPool::Source& source)
    : job_(job),
      options_(options),
      send_(memory / 2, options.max_bytes, options.dtype, source, options.most_buffers),
      receive_(memory / 2, options.max_bytes, options.dtype, source, options.most_buffers) {}

void MessageBench::ping_pong(Side& side) {
  if (job_.rank() == 0) {
    side.send(send_.next(), count_, 1);
    side.receive(receive_.next(), count_, 1);
  } else {
    side.receive(receive_.next(), count_, 0);
    side.send(send_.next(), count_, 0);
  }
}

// Rank 0 sends (both do, in the bidirectional test), rank 1 answers once it has everything.
void MessageBench::window(Side& side) {
  const bool both = options_.kind == Kind::bidirectional;
  const auto messages = static_cast<std::size_t>(options_.window);
  out_.resize(both || job_.rank() == 0 ? messages : 0);
  in_.resize(both || job_.rank() == 1 ? messages : 0);
  for (void*& buffer : out_)
    buffer = send_.next();
  for (void*& buffer : in_)
    buffer = receive_.next();
  side.exchange(out_, in_, count_, 1 - job_.rank());
  if (job_.rank() == 0) {
    side.receive(receive_.next(), 1, 1);
  } else {
    side.send(send_.next(), 1, 0);
  }
}

bool MessageBench::right(Side& side, std::size_t bytes) {
  if (options_.kind == Kind::latency)
    return messages_are_right(job_, side, options_.dtype, bytes, send_, receive_);
  return window_is_right(job_, side, options_.dtype, bytes, static_cast<std::size_t>(options_.window),
                         options_.kind == Kind::bidirectional, send_, receive_);
}

PlainRow MessageBench::measure(Side& side, std::size_t bytes) {
  const bool ping = options_.kind == Kind::latency;
  const std::size_t unit = size_of(options_.dtype);
  send_.cut(std::max(bytes, unit), options_.warm_buffers);
  receive_.cut(std::max(bytes, unit), options_.warm_buffers);
  count_ = bytes / unit;
  PlainRow row;
  row.bytes = bytes;
  row.buffers = send_.count();
  if (options_.validate) row.valid = right(side, bytes);

  double least = 0;
  double most = 0;
  const auto run = [&](long calls) {
    least = std::numeric_limits<double>::infinity();
    most = 0;
    const double begin = now();
    double last = begin;
    for (long i = 0; i < calls; ++i) {
      ping ? ping_pong(side) : window(side);
      const double after = now();
      least = std::min(least, after - last);
      most = std::max(most, after - last);
      last = after;
    }
    return last - begin;
  };
  WarmUp plan;
  plan.calls = options_.warmup;
  plan.usual = ping ? (bytes > 8192 ? 10 : 100) : (bytes > 8192 ? 2 : 10);
  plan.seconds = options_.max_seconds / 8;
  job_.barrier();
  const double per_call = warm_up(job_, plan, run);
  const long usual = ping ? (bytes > 8192 ? 1000 : 10000) : (bytes > 8192 ? 20 : 100);
  row.iterations = options_.iterations.value_or(calls_within(options_.max_seconds, per_call, 5, usual));
  job_.barrier();
  const double total = run(row.iterations);

  // What rank 0 saw counts: it starts every exchange and ends it.
  const double average = total / static_cast<double>(row.iterations);
  if (ping) {
    row.average = average / 2 * 1e6;
    row.minimum = least / 2 * 1e6;
    row.maximum = most / 2 * 1e6;
  } else {
    const double megabytes =
        static_cast<double>(bytes) * options_.window / 1e6 * (options_.kind == Kind::bidirectional ? 2 : 1);
    row.average = megabytes / average;
    row.minimum = megabytes / most;
    row.maximum = megabytes / least;
  }
  if (options_.validate) row.valid = right(side, bytes) && *row.valid;
  return row;
}

}  // namespace heddle::bench
