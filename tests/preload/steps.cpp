// A job that looks like many: collectives in a loop on MPI_COMM_WORLD. Arguments: number of steps; "pid" to
// print the process number of the last rank and then go on until something ends the job; "host" to insist on
// the host; "late" to have the last rank come late now and then.
#include <unistd.h>

#include "job.hpp"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int steps = argc > 1 ? std::atoi(argv[1]) : 100;
  const std::string mode = argc > 2 ? argv[2] : "";
  const int rank = job::rank_of(MPI_COMM_WORLD);
  const int size = job::size_of(MPI_COMM_WORLD);
  for (int i = 0; i < steps; ++i) {
    if (mode == "late" && i >= 10 && i % 3 == 0 && rank == size - 1) usleep(300'000);
    double gradient[200];
    for (double& g : gradient)
      g = rank + i;
    MPI_Allreduce(MPI_IN_PLACE, gradient, 200, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (gradient[199] != size * i + size * (size - 1) / 2.0) job::fail("step %d", i);
    int epoch = rank == i % size ? i : -1;
    MPI_Bcast(&epoch, 1, MPI_INT, i % size, MPI_COMM_WORLD);
    if (epoch != i) job::fail("step %d: bcast", i);
    if (i == 10 && mode == "pid" && rank == size - 1) {
      std::printf("pid %d\n", static_cast<int>(getpid()));
      std::fflush(stdout);
    }
  }
  if (mode == "host" && job::served_by(0, 8, MPI_COMM_WORLD) != "host") job::fail("not left to the host");
  if (mode == "taken" && job::served_by(0, 8, MPI_COMM_WORLD) == "host") job::fail("left to the host");
  // heddle passes it on.
  int sum = 0;
  MPI_Scan(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (sum != rank * (rank + 1) / 2) job::fail("scan: %d", sum);
  if (rank == 0) std::puts("steps done");
  MPI_Finalize();
  return 0;
}
