// Measures messages between two ranks, as OSU's osu_latency, osu_bw and osu_bibw do.
#pragma once

#include "common/buffers.hpp"
#include "common/job.hpp"
#include "common/options.hpp"
#include "common/results.hpp"
#include "common/side.hpp"

namespace heddle::bench {

class MessageBench {
 public:
  MessageBench(const Job& job, const Options& options, std::size_t memory, const BufferPool::Source& source);

  // Half the time of a ping-pong in microseconds; or the MB/s of a window of messages and a short answer to
  // it.
  PlainRow measure(Side& side, std::size_t bytes);

 private:
  void ping_pong(Side& side);
  void window(Side& side);
  bool right(Side& side, std::size_t bytes);

  const Job& job_;
  const Options& options_;
  BufferPool send_;
  BufferPool receive_;
  std::vector<void*> out_;
  std::vector<void*> in_;
  std::size_t count_ = 0;
};

}  // namespace heddle::bench
