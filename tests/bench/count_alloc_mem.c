/* Preloaded: says on standard error, at the end, how often this process called MPI_Alloc_mem. */
#include <mpi.h>
#include <stdio.h>

static int calls;

int MPI_Alloc_mem(MPI_Aint size, MPI_Info info, void* memory) {
  ++calls;
  return PMPI_Alloc_mem(size, info, memory);
}

int MPI_Finalize(void) {
  fprintf(stderr, "MPI_Alloc_mem: %d calls\n", calls);
  return PMPI_Finalize();
}
