// -c: whether a side's collectives give what they must, to the last bit.
#pragma once

#include "common/buffers.hpp"
#include "common/job.hpp"
#include "common/side.hpp"

namespace heddle::bench {

// Every rank gets the same answer. Buffers are cut to `bytes` or more, and to all ranks' where an allgather's
// result goes; collective. `receive` is null for bcasts, and in place.
bool collective_is_right(const Job& job, Side& side, Kind kind, Dtype dtype, std::size_t bytes,
                         BufferPool& send, BufferPool* receive);
// Rank 0 sends to rank 1, which answers with what it got.
bool messages_are_right(const Job& job, Side& side, Dtype dtype, std::size_t bytes, BufferPool& send,
                        BufferPool& receive);
// A window of up to `messages` messages, as many as there are buffers, each with something else in it: from
// rank 0 to rank 1 or, with `both`, the other way as well.
bool window_is_right(const Job& job, Side& side, Dtype dtype, std::size_t bytes, std::size_t messages,
                     bool both, BufferPool& send, BufferPool& receive);

}  // namespace heddle::bench
