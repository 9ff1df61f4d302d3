// Measures one collective at one size.
#pragma once

#include <optional>
#include <string>

#include "common/buffers.hpp"
#include "common/job.hpp"
#include "common/options.hpp"
#include "common/results.hpp"
#include "common/side.hpp"

namespace heddle::bench {

class CollectiveBench {
 public:
  // Takes `memory` bytes for buffers, which are least_memory(options, ranks) or more.
  CollectiveBench(const Job& job, const Options& options, std::size_t memory,
                  const BufferPool::Source& source = {});

  // As OSU measures: every call is timed by itself, with a barrier between calls; averages over ranks. Root
  // is 0.
  PlainRow measure(Side& side, std::size_t bytes);

  // Blocks of back-to-back calls on either side in turn, the order swapped each round. The root of a bcast or
  // reduce moves on with every call, so that no rank can run far ahead, unless it shall be a fixed one. Both
  // sides use the same buffers.
  ComparedRow compare(Side& host, Side& heddle, std::size_t bytes);

 private:
  void call(Side& side);
  // Seconds of `calls` calls, after `lead_in` that are not timed.
  double block(Side& side, long calls, long lead_in);
  long least_calls() const;
  long calls_to_lead_in(double seconds_per_call) const;
  long calls_per_sample(double seconds_per_call) const;
  int rounds_for(double seconds_per_round) const;
  bool right(Side& side, std::size_t bytes);
  std::string algorithm_of(Side& side) const;
  void cut(std::size_t bytes);
  std::size_t buffers() const;  // of each kind

  const Job& job_;
  const Options& options_;
  BufferPool send_;
  std::optional<BufferPool> receive_;  // of results elsewhere than in place
  std::size_t count_ = 0;              // elements in a message
  int root_ = 0;
};

}  // namespace heddle::bench
