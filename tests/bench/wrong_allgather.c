/* Preloaded: MPI_Allgather of two ranks with a mistake on one of them. WRONG: "rank" leaves out what rank 0
 * has, "result" spoils the last byte, "order" exchanges what both gave, and "input" spoils the first byte of
 * what rank 0 sent. Results that lie in the one of the call before end the job. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

int MPI_Allgather(const void* in, int count, MPI_Datatype type, void* out, int out_count,
                  MPI_Datatype out_type, MPI_Comm comm) {
  static char zeros[4096];
  static char other[4096];
  const char* wrong = getenv("WRONG");
  int rank = 0;
  int width = 0;
  PMPI_Comm_rank(comm, &rank);
  PMPI_Type_size(type, &width);
  const size_t bytes = (size_t)count * (size_t)width;
  char* results = out;
  static char* before;
  if (before != results && before < results + 2 * bytes && results < before + 2 * bytes) MPI_Abort(comm, 3);
  before = results;
  if (wrong == NULL) return PMPI_Allgather(in, count, type, out, out_count, out_type, comm);
  const int leaves_out = strcmp(wrong, "rank") == 0 && rank == 0;
  const int status = PMPI_Allgather(leaves_out ? zeros : in, count, type, out, out_count, out_type, comm);
  if (strcmp(wrong, "result") == 0 && rank == 1) results[2 * bytes - 1] ^= 1;
  if (strcmp(wrong, "input") == 0 && rank == 0) *(char*)in ^= 1;
  if (strcmp(wrong, "order") == 0 && rank == 1) {
    memcpy(other, results, bytes);
    memcpy(results, results + bytes, bytes);
    memcpy(results + bytes, other, bytes);
  }
  return status;
}
