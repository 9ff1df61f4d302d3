// A tool that a program is linked with, in front of its MPI, and that has something to say of scans and
// at the end.
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstdio>

extern "C" __attribute__((visibility("default"))) int MPI_Scan(const void* in, void* out, int count,
                                                               MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  std::printf("tool: a scan of %d\n", count);
  std::fflush(stdout);
  return PMPI_Scan(in, out, count, type, op, comm);
}

extern "C" __attribute__((visibility("default"))) int MPI_Finalize() {
  std::puts("tool: the end");
  std::fflush(stdout);
  return PMPI_Finalize();
}
