// A tool that a program is linked with, in front of its MPI, and that has something to say of reductions and
// at the end.
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstdio>

extern "C" __attribute__((visibility("default"))) int MPI_Reduce(const void* in, void* out, int count,
                                                                 MPI_Datatype type, MPI_Op op, int root,
                                                                 MPI_Comm comm) {
  std::printf("tool: a reduce of %d\n", count);
  std::fflush(stdout);
  return PMPI_Reduce(in, out, count, type, op, root, comm);
}

extern "C" __attribute__((visibility("default"))) int MPI_Finalize() {
  std::puts("tool: the end");
  std::fflush(stdout);
  return PMPI_Finalize();
}
