/* One rank of a job without MPI (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT): sums in memory that other ranks
 * reach, and waits for a rank that comes late or, with the argument "dies", for one that does, of which the
 * others must be told. What fails is said on standard error, with status 1. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "heddle/heddle.h"
#include "support/leaks_without_proc.h"

#define COUNT ((size_t)1 << 20)

static int check(heddle_status status) {
  if (status != HEDDLE_OK) fprintf(stderr, "%s: %s\n", heddle_status_name(status), heddle_last_error());
  return status == HEDDLE_OK;
}

static int is_told(heddle_comm_t comm, int rank) {
  char name[32];
  snprintf(name, sizeof name, "rank %d ", rank);
  if (heddle_barrier(comm) == HEDDLE_ERR_PEER && strstr(heddle_last_error(), name) != NULL) return 1;
  fprintf(stderr, "told of the rank that died: %s\n", heddle_last_error());
  return 0;
}

int main(int argc, char** argv) {
  const int dies = argc > 1 && strcmp(argv[1], "dies") == 0;
  heddle_comm_t comm;
  int rank = 0;
  int size = 0;
  void* memory;
  if (!check(heddle_comm_create_env(&comm)) || !check(heddle_comm_rank(comm, &rank)) ||
      !check(heddle_comm_size(comm, &size)) || !check(heddle_alloc(COUNT * sizeof(float), comm, &memory)))
    return 1;
  float* data = memory;
  for (size_t i = 0; i < COUNT; ++i)
    data[i] = (float)(rank + 1);
  if (!check(heddle_allreduce(HEDDLE_IN_PLACE, data, COUNT, HEDDLE_FLOAT32, HEDDLE_SUM, comm))) return 1;
  for (size_t i = 0; i < COUNT; ++i) {
    if (data[i] != (float)(size * (size + 1) / 2)) {
      fprintf(stderr, "element %zu of rank %d, process %d, is %g\n", i, rank, (int)getpid(), data[i]);
      return 1;
    }
  }
  if (dies && rank == size - 1) raise(SIGKILL);
  if (dies) return is_told(comm, size - 1) && check(heddle_comm_destroy(comm)) ? 0 : 1;
  if (rank == size - 1) sleep(1);
  return check(heddle_barrier(comm)) && check(heddle_comm_destroy(comm)) ? 0 : 1;
}
