/* What fortran_mixed.f90 calls from C. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

void sum_in_c(const double* mine, double* total);
void bcast_in_c(int* numbers, int root);
void barrier_in_c(void);
void own_sums_in_c(void);
void* allocate_in_c(long bytes);
void free_in_c(void* memory);

static void expect(int right, const char* what) {
  if (right) return;
  printf("WRONG: %s\n", what);
  fflush(stdout);
  PMPI_Abort(MPI_COMM_WORLD, 9);
}

void sum_in_c(const double* mine, double* total) {
  MPI_Allreduce(mine, total, 3, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

void bcast_in_c(int* numbers, int root) {
  MPI_Bcast(numbers, 5, MPI_INT, root, MPI_COMM_WORLD);
}

void barrier_in_c(void) {
  MPI_Barrier(MPI_COMM_WORLD);
}

static const char* served_by(MPI_Comm comm) {
  const char* (*ask)(int, size_t, uintptr_t) =
      (const char* (*)(int, size_t, uintptr_t))dlsym(RTLD_DEFAULT, "heddle_preload_algorithm");
  uintptr_t word = 0;
  memcpy(&word, &comm, sizeof comm);
  return ask != NULL ? ask(0, 4, word) : "absent";
}

/* What C calls by the name PMPI_ is the host's, and on a communicator of which heddle knows nothing that
 * remains so. */
void own_sums_in_c(void) {
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  for (int i = 0; i < 20; ++i) {
    int one = 1, sum = 0, size = 0;
    PMPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
    PMPI_Comm_size(comm, &size);
    expect(sum == size, "PMPI_Allreduce from C");
    PMPI_Bcast(&sum, 1, MPI_INT, 0, comm);
  }
  expect(strcmp(served_by(comm), "host") == 0, "PMPI functions called from C are not the host's");
  expect(strcmp(served_by(MPI_COMM_WORLD), "host") != 0, "heddle serves nothing here");
  MPI_Comm_free(&comm);
}

void* allocate_in_c(long bytes) {
  void* memory = NULL;
  MPI_Alloc_mem(bytes, MPI_INFO_NULL, &memory);
  return memory;
}

void free_in_c(void* memory) {
  MPI_Free_mem(memory);
}
