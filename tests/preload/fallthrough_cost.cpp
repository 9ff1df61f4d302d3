// What a call costs that heddle leaves to the host: run with and without the preload library, and compare.
// Not a test (timings are no assertions); one rank, so that the host's own work is as small as it can be.
#include <algorithm>

#include "job.hpp"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  constexpr int kCalls = 20'000'000;
  int data = 1;
  int out = 0;
  double hooked = 1e9;
  double direct = 1e9;
  for (int repeat = 0; repeat < 5; ++repeat) {
    double start = MPI_Wtime();
    for (int i = 0; i < kCalls; ++i)
      MPI_Allreduce(&data, &out, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF);
    hooked = std::min(hooked, MPI_Wtime() - start);
    start = MPI_Wtime();
    for (int i = 0; i < kCalls; ++i)
      PMPI_Allreduce(&data, &out, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF);
    direct = std::min(direct, MPI_Wtime() - start);
  }
  std::printf("MPI_Allreduce %.2f ns, PMPI_Allreduce %.2f ns, difference %.2f ns a call\n",
              hooked / kCalls * 1e9, direct / kCalls * 1e9, (hooked - direct) / kCalls * 1e9);
  MPI_Finalize();
  return 0;
}
