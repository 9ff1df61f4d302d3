// A tool that counts calls on their way to the MPI.
#define MPICH_SKIP_MPICXX 1
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <cstdio>

#define TOOL_EXPORT extern "C" __attribute__((visibility("default")))

static int allreduces = 0;
static int bcasts = 0;

TOOL_EXPORT int MPI_Allreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op,
                              MPI_Comm comm) {
  const int rc = PMPI_Allreduce(in, out, count, type, op, comm);
  ++allreduces;
  return rc;
}

TOOL_EXPORT int MPI_Bcast(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  const int rc = PMPI_Bcast(buffer, count, type, root, comm);
  ++bcasts;
  return rc;
}

TOOL_EXPORT int MPI_Finalize() {
  std::printf("tool: %d allreduces, %d bcasts\n", allreduces, bcasts);
  std::fflush(stdout);
  return PMPI_Finalize();
}
