/* One rank of a job without MPI whose rank 1 loses its buffer in the middle: another thread of it unmaps the
 * memory that allreduces run on. Argument: "private" for memory of the program's own, "shared" for memory
 * from heddle_alloc. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "heddle/heddle.h"

#define BYTES ((size_t)32 << 20)

static void* unmap(void* memory) {
  const struct timespec soon = {0, 30 * 1000 * 1000};
  nanosleep(&soon, NULL);
  /* Not munmap alone: something else could land there. */
  return mmap(memory, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
}

int main(int argc, char** argv) {
  heddle_comm_t comm;
  void* data = NULL;
  if (argc != 2 || heddle_comm_create_env(&comm) != HEDDLE_OK) return 2;
  if (strcmp(argv[1], "shared") == 0) {
    if (heddle_alloc(BYTES, comm, &data) != HEDDLE_OK) return 2;
  } else {
    data = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return 2;
  }
  memset(data, 0, BYTES);
  int rank = 0;
  if (heddle_comm_rank(comm, &rank) != HEDDLE_OK) return 2;
  if (rank == 1) {
    pthread_t other;
    if (pthread_create(&other, NULL, unmap, data) != 0) return 2;
  }
  for (int i = 0; i < 100000; ++i) {
    const heddle_status status =
        heddle_allreduce(HEDDLE_IN_PLACE, data, BYTES / sizeof(float), HEDDLE_FLOAT32, HEDDLE_SUM, comm);
    if (status == HEDDLE_OK) continue;
    printf("%s: %s\n", heddle_status_name(status), heddle_last_error());
    heddle_comm_destroy(comm);
    if (strcmp(argv[1], "private") == 0) munmap(data, BYTES);
    return 3;
  }
  return 0;
}
