// How a program's ranks leave their MPI: together, or all because of one. By PMPI_ calls, which no preload
// library sees.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "interpose/backend/finalize_together.hpp"

namespace heddle::tools {

// Before MPI_Finalize, on all ranks of `comm`: else MPICH up to 4.1 does not end over several hosts, in some
// runs or in most, whatever the program does.
inline void meet_before_finalize(MPI_Comm comm) {
  char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  if (PMPI_Get_library_version(version, &length) != MPI_SUCCESS) return;
  const Status met = backend::finalize_together(version, [comm](bool mine) {
    const int here = mine ? 1 : 0;
    int all = 0;
    return PMPI_Allreduce(&here, &all, 1, MPI_INT, MPI_MIN, comm) == MPI_SUCCESS && all != 0;
  });
  if (!met.ok()) std::fprintf(stderr, "MPI_Finalize may hang: %s\n", met.message().c_str());
}

// Ends all ranks, after this one has said why on standard error. Hydra drops what it has not read when a job
// aborts, and with it the reason: that gets time to be read.
[[noreturn]] inline void abort_mpi() {
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  PMPI_Abort(MPI_COMM_WORLD, 1);
  std::_Exit(1);
}

}  // namespace heddle::tools
