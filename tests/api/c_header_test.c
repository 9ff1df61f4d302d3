/* heddle.h, heddle_sparse.h, heddle_compress.h and heddle_cuda.h from C: a communicator of one rank, and a
 * value through it. */
#include <heddle/heddle.h>
#include <heddle/heddle_compress.h>
#include <heddle/heddle_cuda.h>
#include <heddle/heddle_sparse.h>
#include <stdio.h>
#include <string.h>

static int alone(const void* mine, void* all, size_t bytes, void* context) {
  (void)context;
  memcpy(all, mine, bytes);
  return 0;
}

static int check(const char* what, heddle_status status) {
  if (status == HEDDLE_OK) return 0;
  fprintf(stderr, "%s: %s: %s\n", what, heddle_status_name(status), heddle_last_error());
  return 1;
}

int main(void) {
  heddle_comm_t comm = NULL;
  double in[3] = {1, 2, 3};
  double out[3] = {0, 0, 0};
  int failures = check("create", heddle_comm_create(0, 1, alone, NULL, NULL, &comm));
  failures += check("allreduce", heddle_allreduce(in, out, 3, HEDDLE_FLOAT64, HEDDLE_SUM, comm));
  if (memcmp(in, out, sizeof(in)) != 0) {
    fprintf(stderr, "the sum of one is another\n");
    ++failures;
  }
  if (heddle_allreduce_on_stream(in, out, 3, HEDDLE_FLOAT64, HEDDLE_SUM, comm, NULL) !=
      HEDDLE_ERR_UNSUPPORTED) {
    fprintf(stderr, "a stream in a process without CUDA\n");
    ++failures;
  }
  failures += check("destroy", heddle_comm_destroy(comm));
  if (strcmp(heddle_version(), HEDDLE_VERSION_STRING) != 0) ++failures;
  return failures == 0 ? 0 : 1;
}
