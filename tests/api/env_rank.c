/* One rank of a job without MPI, started with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT: sums a megabyte
 * and looks at the result. What fails is said on standard error, with status 1. */
#include <stdio.h>
#include <stdlib.h>

#include "heddle/heddle.h"
#include "support/leaks_without_proc.h"

#define COUNT (1 << 18)

static int check(heddle_status status) {
  if (status != HEDDLE_OK) fprintf(stderr, "%s: %s\n", heddle_status_name(status), heddle_last_error());
  return status == HEDDLE_OK;
}

int main(void) {
  const char* size = getenv("WORLD_SIZE");
  float* data = malloc(COUNT * sizeof(float));
  heddle_comm_t comm;
  if (data == NULL || size == NULL || !check(heddle_comm_create_env(&comm))) return 1;
  for (int i = 0; i < COUNT; ++i)
    data[i] = (float)(i % 1000);
  if (!check(heddle_allreduce(HEDDLE_IN_PLACE, data, COUNT, HEDDLE_FLOAT32, HEDDLE_SUM, comm))) return 1;
  for (int i = 0; i < COUNT; ++i) {
    if (data[i] != (float)(i % 1000 * atoi(size))) {
      fprintf(stderr, "element %d is %g\n", i, data[i]);
      return 1;
    }
  }
  if (!check(heddle_comm_destroy(comm))) return 1;
  free(data);
  return 0;
}
