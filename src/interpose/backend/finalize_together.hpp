// Lets all ranks of a job enter the last part of MPI_Finalize together, for hosts that hang there otherwise.
//
// MPICH up to 4.1 over UCX has each rank close its connections when it gets there and then wait in a barrier
// of the process manager, where it drives UCX no longer. Over TCP, UCX has what was sent confirmed before it
// closes. A rank that drives MPI a little longer than its peer (any wait for a message will do) confirms the
// peer's last messages early; the peer goes on to that barrier, and nobody is left to confirm this rank's
// own. MPICH 4.2 no longer does so (commit 08d8105b7b). heddle's messages end at other moments than the
// host's, be they lent by it or not: it must not leave to luck whether a job ends. What helps is that nobody
// drives UCX between the moment when all ranks are there and their closing, and only a barrier that is not
// UCX's can tell them so.
#pragma once

#include <functional>
#include <string_view>

#include "base/status.hpp"

namespace heddle::backend {

// Whether the library with this MPI_Get_library_version is such a host, started over version 1 of the process
// manager interface (PMI).
bool may_hang_in_finalize(std::string_view library_version);

// A barrier of the process manager over all ranks that it started. `fd`: its socket (PMI_FD), on which
// nothing may be under way. Waits for as long as it takes, like the barrier in MPI_Finalize, because a rank
// that has said that it is there cannot take that back.
Status process_manager_barrier(int fd);

// Before MPI_Finalize, on all ranks of a job: what is said above, where the host is such a one; else nothing.
// `everybody` tells whether all ranks say so, by the host's messages, and is not called for other hosts.
Status finalize_together(std::string_view library_version, const std::function<bool(bool mine)>& everybody);

}  // namespace heddle::backend
