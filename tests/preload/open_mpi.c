/* A job of an MPI that heddle has no backend for (Open MPI): everything passes through. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char** argv) {
  int rank, size;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int i = 0; i < 10; ++i) {
    double in = rank + i, out = -1;
    MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    int value = rank == 0 ? i : -1;
    MPI_Bcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (out != size * i + size * (size - 1) / 2 || value != i) MPI_Abort(MPI_COMM_WORLD, 9);
  }
  if (rank == 0) puts("open mpi done");
  MPI_Finalize();
  return 0;
}
