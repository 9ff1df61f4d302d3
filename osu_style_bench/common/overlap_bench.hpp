// Measures how much of a non-blocking collective goes on while its caller computes, as OSU's osu_iallreduce
// and osu_ibcast do.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/buffers.hpp"
#include "common/job.hpp"
#include "common/options.hpp"
#include "common/results.hpp"
#include "common/side.hpp"

namespace heddle::bench {

// Arithmetic in a core's own registers and cache: a fixed amount of it, so that time which somebody takes
// from it shows.
class Computation {
 public:
  Computation();
  // As many units as took `seconds` just now, at least one.
  void last(double seconds);
  // `times` as many, at least one: of a computation that took something else than it was to.
  void scale(double times);
  // Calls `between` `times` times on the way, evenly spread.
  template <typename Between>
  void run(int times, Between&& between) {
    for (int part = 0; part < times; ++part) {
      units(units_ * (part + 1) / (times + 1) - units_ * part / (times + 1));
      between();
    }
    units(units_ - units_ * times / (times + 1));
  }

 private:
  void units(long count);

  std::vector<float> values_;
  long units_ = 1;
};

// 100 where both at once take as long as the longer of the two alone, 0 where as long as one after the other.
double overlap_percent(double pure_us, double compute_us, double overall_us);

// Why that would say nothing; empty where it does. Both at once cannot be shorter than either alone, unless
// the machine changed in between; and beside a computation of another length than the collective's hardly any
// overlap, or nearly all of it, comes by itself.
std::string why_no_overlap(double pure_us, double compute_us, double overall_us);

class OverlapBench {
 public:
  OverlapBench(const Job& job, const Options& options, std::size_t memory, const BufferPool::Source& source);

  // Rounds of the collective alone, the computation alone, and both; the computation takes about as long as
  // the collective. Medians over rounds of the longest over ranks. Unlike OSU's the computation is an amount
  // of work, not of time: a thread or a library that takes the core from it gets no credit for that.
  OverlapRow measure(Side& side, std::size_t bytes);

 private:
  void start(Side& side);
  double alone(Side& side);  // seconds, of one round
  double compute(Side& side);
  void run_computation(Side& side, int tests);
  void make_as_long(Side& side, double per_call);
  bool right(Side& side, std::size_t bytes);

  const Job& job_;
  const Options& options_;
  BufferPool send_;
  std::optional<BufferPool> receive_;  // of sums
  Computation computation_;
  std::size_t count_ = 0;  // elements in a message
};

}  // namespace heddle::bench
