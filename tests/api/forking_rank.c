/* One rank of a job without MPI (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT): a child that it forks between
 * sums leaves as C++ programs do, by destroying what was in scope, after calls that it must not make. With
 * the argument "dies" rank 1 is killed while a child of it lives, of which rank 0 must be told. What fails is
 * said on standard error, with status 1. */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "heddle/heddle.h"

#define COUNT 100000

static int check(heddle_status status) {
  if (status != HEDDLE_OK) fprintf(stderr, "%s: %s\n", heddle_status_name(status), heddle_last_error());
  return status == HEDDLE_OK;
}

static int is_refused(const char* call, heddle_status status) {
  if (status != HEDDLE_ERR_ARGUMENT) fprintf(stderr, "%s in a child: %s\n", call, heddle_status_name(status));
  return status == HEDDLE_ERR_ARGUMENT;
}

/* What a child does by mistake is refused, and no part of the parent's calls. */
static int child_is_kept_out(heddle_comm_t comm, heddle_request_t request) {
  double value = 100;
  int done = 0;
  return is_refused("allreduce",
                    heddle_allreduce(HEDDLE_IN_PLACE, &value, 1, HEDDLE_FLOAT64, HEDDLE_SUM, comm)) &&
         (request == NULL ||
          (is_refused("test", heddle_test(&request, &done)) && is_refused("wait", heddle_wait(&request)) &&
           check(heddle_request_free(&request)))) &&
         check(heddle_comm_destroy(comm));
}

static int child_ends_well(heddle_comm_t comm, heddle_request_t request) {
  const pid_t child = fork();
  if (child == 0) _exit(child_is_kept_out(comm, request) ? 0 : 1);
  int status = 1;
  if (child < 0 || waitpid(child, &status, 0) != child) return 0;
  if (status != 0) fprintf(stderr, "the child ended with status %#x\n", (unsigned)status);
  return status == 0;
}

/* The child ends with this test, of which it holds nothing else up. */
static int child_outlives(heddle_comm_t comm, int rank) {
  pid_t child = 0;
  if (rank == 1 && (child = fork()) == 0) {
    fclose(stdout);
    fclose(stderr);
    alarm(30);
    for (;;)
      pause();
  }
  if (child < 0 || !check(heddle_bcast(&child, sizeof child, 1, comm))) return 0;
  if (rank == 1) raise(SIGKILL);
  const heddle_status status = heddle_barrier(comm);
  kill(child, SIGKILL);
  if (status == HEDDLE_ERR_PEER && strstr(heddle_last_error(), "rank 1 ") != NULL) return 1;
  fprintf(stderr, "told of the rank that died: %s\n", heddle_last_error());
  return 0;
}

int main(int argc, char** argv) {
  static float in[COUNT];
  static float out[COUNT];
  heddle_comm_t comm;
  int rank = 0;
  int size = 0;
  if (!check(heddle_comm_create_env(&comm)) || !check(heddle_comm_rank(comm, &rank)) ||
      !check(heddle_comm_size(comm, &size)))
    return 1;
  if (argc > 1 && strcmp(argv[1], "dies") == 0)
    return child_outlives(comm, rank) && check(heddle_comm_destroy(comm)) ? 0 : 1;
  for (int round = 0; round < 20; ++round) {
    for (size_t i = 0; i < COUNT; ++i)
      in[i] = (float)round;
    heddle_request_t request;
    double one = 1;
    double sum = 0;
    if (!check(heddle_iallreduce(&one, &sum, 1, HEDDLE_FLOAT64, HEDDLE_SUM, comm, &request)) ||
        (round % 2 == 0 && !child_ends_well(comm, request)) || !check(heddle_wait(&request)) ||
        !child_ends_well(comm, NULL) ||
        !check(heddle_allreduce(in, out, COUNT, HEDDLE_FLOAT32, HEDDLE_SUM, comm)))
      return 1;
    if (sum != size || out[COUNT - 1] != (float)(size * round)) {
      fprintf(stderr, "round %d: %g and %g\n", round, sum, out[COUNT - 1]);
      return 1;
    }
  }
  return check(heddle_comm_destroy(comm)) ? 0 : 1;
}
