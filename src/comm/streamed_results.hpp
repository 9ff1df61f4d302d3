// From which size on results are better stored past the cache: that differs between machines, and with what
// the program does next.
#pragma once

#include <cstddef>
#include <functional>

#include "base/status.hpp"

namespace heddle {

struct StreamingTrial {
  // Seconds that the slowest rank takes for one allreduce whose results are stored in the one way or the
  // other, and, with `reads`, for a pass over the result. Every rank gets the same answer.
  std::function<Result<double>(std::size_t bytes, bool streamed, bool reads)> time;
};

// Collective, 20 to 30 ms. Both ways by turns, with the result read at once and not: a program that reads it
// at once loses by streaming what one that reads it later gains. The size, of those tried, from which on
// streaming saves the most; SIZE_MAX where it saves nothing. A failure of `time` ends it.
Result<std::size_t> measure_streaming(const StreamingTrial& trial);

}  // namespace heddle
