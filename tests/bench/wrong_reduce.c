/* Preloaded: MPI_Reduce of floats with a mistake, where rank 1 is the root. WRONG: "rank" leaves out
 * what rank 0 has, "result" spoils the last element, and "input" the first one of what rank 0 sent. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

int MPI_Reduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm) {
  static float zeros[1024];
  const char* wrong = getenv("WRONG");
  int rank = 0;
  PMPI_Comm_rank(comm, &rank);
  if (wrong == NULL || root != 1) return PMPI_Reduce(in, out, count, type, op, root, comm);
  const int leaves_out = strcmp(wrong, "rank") == 0 && rank == 0;
  const int status = PMPI_Reduce(leaves_out ? zeros : in, out, count, type, op, root, comm);
  if (strcmp(wrong, "result") == 0 && rank == 1) ((float*)out)[count - 1] += 1;
  if (strcmp(wrong, "input") == 0 && rank == 0) ((float*)in)[0] += 1;
  return status;
}
