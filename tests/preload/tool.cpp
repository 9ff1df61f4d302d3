// A tool that a program is linked with, in front of its MPI, and that has something to say at the end.
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstdio>

extern "C" __attribute__((visibility("default"))) int MPI_Finalize() {
  std::puts("tool: the end");
  std::fflush(stdout);
  return PMPI_Finalize();
}
