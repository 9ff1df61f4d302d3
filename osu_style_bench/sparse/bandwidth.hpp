// How fast one rank can send to another.
#pragma once

#include "common/job.hpp"

namespace heddle::bench {

// Bytes per second of large messages from rank 0 to the last rank, one way, one after the other: the median over
// windows of them. Collective; `seconds` is about how long it takes. At least two ranks.
double measure_wire(const Job& job, heddle_comm_t comm, double seconds);

}  // namespace heddle::bench
