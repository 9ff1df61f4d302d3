// A rank goes on driving MPI for a while after the others have called MPI_Finalize. Over UCX's TCP MPICH 4.0
// hangs then; under heddle it must not (finalize_together.hpp).
#include "job.hpp"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  job::warm_up(MPI_COMM_WORLD);
  if (job::rank_of(MPI_COMM_WORLD) == 0) {
    const double end = MPI_Wtime() + 0.1;
    for (int found = 0; MPI_Wtime() < end;)
      MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
  }
  MPI_Finalize();
  return 0;
}
