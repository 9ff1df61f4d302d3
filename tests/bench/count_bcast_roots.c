/* Preloaded: says on standard error, at the end, from which root how many bcasts of the host MPI this process
 * took part in. */
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

int MPI_Finalize(void) {
  fprintf(stderr, "bcasts: %d %d\n", calls[0], calls[1]);
  return PMPI_Finalize();
}
