// Whether streams are sent from one rank to another, and how fast that can be.
#pragma once

#include "common/job.hpp"

namespace heddle::bench {

// Bytes per second of large messages from rank 0 to the last rank, one way, one after the other: the median
// over windows of them. Collective; `seconds` is about how long it takes. At least two ranks.
double measure_wire(const Job& job, heddle_comm_t comm, double seconds);

// False where ranks read each other's streams in memory, which all of a node can reach, and send where they
// lie alone: what is counted as sent is not what is summed then. Collective.
bool streams_are_sent(const Job& job, heddle_comm_t comm);

}  // namespace heddle::bench
