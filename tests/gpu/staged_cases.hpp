// Messages with requests, and of types that are not as simple as most.
#pragma once

#include "mpi_buffers.hpp"

namespace gpu_job {

void several(Job& job);
void columns(Job& job);
void odd_types(Job& job);
void too_short(Job& job);
void at_once(Job& job);
void freed_requests(Job& job);
void structures(Job& job);
// Persistent requests: what is in the buffers counts when they are started.
void again_and_again(Job& job);
void sums_again(Job& job);
void freed_while_started(Job& job);
// After errors that leave them as they were.
void starts_that_fail(Job& job);
void freed_and_too_short(Job& job);
// Messages in a callback of MPI_Finalize, which says that it was reached.
void in_finalize(Job& job);

}  // namespace gpu_job
