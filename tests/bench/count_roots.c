/* Preloaded: says on standard error, at the end, with which root how many bcasts and reduces of the host MPI
 * this process took part in. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>

static int calls[2];

int PMPI_Bcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  int (*next)(void*, int, MPI_Datatype, int, MPI_Comm) = NULL;
  *(void**)&next = dlsym(RTLD_NEXT, "PMPI_Bcast");
  ++calls[root];
  return next(data, count, type, root, comm);
}

int PMPI_Reduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm) {
  int (*next)(const void*, void*, int, MPI_Datatype, MPI_Op, int, MPI_Comm) = NULL;
  *(void**)&next = dlsym(RTLD_NEXT, "PMPI_Reduce");
  ++calls[root];
  return next(in, out, count, type, op, root, comm);
}

int MPI_Finalize(void) {
  fprintf(stderr, "roots: %d %d\n", calls[0], calls[1]);
  return PMPI_Finalize();
}
