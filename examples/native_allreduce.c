/* clang-format off */
/* The native API without MPI: every process adds up the ranks. In the repository, installed into dist/:
 *
 *   export PKG_CONFIG_PATH=$PWD/dist/lib/pkgconfig
 *   gcc examples/native_allreduce.c $(pkg-config --cflags --libs heddle) -Wl,-rpath,$PWD/dist/lib -o native_allreduce
 *   for r in 0 1; do RANK=$r WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 ./native_allreduce & done; wait
 *
 * Any launcher that sets these four variables starts it just as well. torchrun's own store listens on MASTER_PORT: give it another port for heddle,
 *
 *   HEDDLE_MASTER_PORT=29501 torchrun --nproc-per-node 2 --no-python ./native_allreduce
 */
/* clang-format on */
#include <heddle/heddle.h>
#include <stdio.h>

static int failed(const char* what, heddle_status status) {
  if (status == HEDDLE_OK) return 0;
  fprintf(stderr, "native_allreduce: %s: %s: %s\n", what, heddle_status_name(status), heddle_last_error());
  return 1;
}

int main(void) {
  heddle_comm_t comm = NULL;
  if (failed("heddle_comm_create_env", heddle_comm_create_env(&comm))) return 1;
  int rank = 0;
  int size = 0;
  int bad = failed("heddle_comm_rank", heddle_comm_rank(comm, &rank)) ||
            failed("heddle_comm_size", heddle_comm_size(comm, &size));
  if (!bad) {
    float mine[2] = {1.0F, (float)rank};
    float sum[2] = {0.0F, 0.0F};
    bad = failed("heddle_allreduce", heddle_allreduce(mine, sum, 2, HEDDLE_FLOAT32, HEDDLE_SUM, comm));
    if (!bad) printf("rank %d of %d: %.0f ranks, which add up to %.0f\n", rank, size, sum[0], sum[1]);
  }
  if (failed("heddle_comm_destroy", heddle_comm_destroy(comm))) bad = 1;
  return bad;
}
