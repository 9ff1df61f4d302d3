// The host MPI keeps moving while ranks wait inside heddle: a rendezvous MPI_Isend is pending while its
// sender is in a collective that the receiver enters only after it has the message. Also pending non-blocking
// collectives.
#include "job.hpp"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int rank = job::rank_of(MPI_COMM_WORLD);
  const int size = job::size_of(MPI_COMM_WORLD);
  job::warm_up(MPI_COMM_WORLD);
  constexpr int kCount = 1 << 20;  // 8 MiB: far beyond any eager limit
  std::vector<double> message(kCount, rank);
  std::vector<double> vector(kCount / 8, 1.0);
  for (int round = 0; round < 6; ++round) {
    const auto collective = [&] {
      double one = 1;
      double sum = 0;
      if (round % 3 == 2) {
        MPI_Barrier(MPI_COMM_WORLD);
      } else if (round % 3 == 1) {
        MPI_Bcast(vector.data(), static_cast<int>(vector.size()), MPI_DOUBLE, size - 1, MPI_COMM_WORLD);
      } else {
        MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        if (sum != size) job::fail("sum is %g", sum);
      }
    };
    double early = rank;
    double early_sum = 0;
    MPI_Request nonblocking;
    MPI_Iallreduce(&early, &early_sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &nonblocking);
    if (rank == size - 1) {
      MPI_Recv(message.data(), kCount, MPI_DOUBLE, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      if (message[kCount - 1] != 0) job::fail("wrong message");
      collective();
    } else if (rank == 0) {
      MPI_Request request;
      MPI_Isend(message.data(), kCount, MPI_DOUBLE, size - 1, 7, MPI_COMM_WORLD, &request);
      collective();
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
      collective();
    }
    MPI_Wait(&nonblocking, MPI_STATUS_IGNORE);
    const int sum_of_ranks = size * (size - 1) / 2;
    if (early_sum != sum_of_ranks) job::fail("Iallreduce gave %g", early_sum);
  }
  MPI_Finalize();
  return 0;
}
