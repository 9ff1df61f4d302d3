// One-sided operations by the host MPI, with locks, on a rank that is inside a collective of heddle's all the
// time: it takes part in them by driving the host. MPI leaves it open when they are done, but a program that
// waits for one before it comes to the collective must come there.
#include "job.hpp"

namespace {

constexpr int kLongest = 60'000;

void check(MPI_Win window, std::vector<long>& memory, int round, int count) {
  const int rank = job::rank_of(MPI_COMM_WORLD);
  const int size = job::size_of(MPI_COMM_WORLD);
  if (rank != 0) {
    const std::vector<long> ones(static_cast<std::size_t>(count), 1);
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
    MPI_Accumulate(ones.data(), count, MPI_LONG, 0, 0, count, MPI_LONG, MPI_SUM, window);
    MPI_Win_unlock(0, window);
    const long one = 1;
    long before = -1;
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
    MPI_Fetch_and_op(&one, &before, MPI_LONG, 0, kLongest, MPI_SUM, window);
    MPI_Win_unlock(0, window);
    if (before < long{round} * (size - 1)) job::fail("round %d: the counter was %ld", round, before);
  }
  int x = 1;
  if (round % 3 == 0)
    MPI_Barrier(MPI_COMM_WORLD);
  else if (round % 3 == 1)
    MPI_Allreduce(MPI_IN_PLACE, &x, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  else
    MPI_Bcast(&x, 1, MPI_INT, size - 1, MPI_COMM_WORLD);
  if (round % 3 == 2) PMPI_Barrier(MPI_COMM_WORLD);  // ranks that have sent a bcast's data go on
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window);
  const long counter = memory[kLongest];
  MPI_Win_unlock(rank, window);
  if (rank == 0 && counter < long{round + 1} * (size - 1))
    job::fail("round %d: the counter is %ld", round, counter);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  job::warm_up(MPI_COMM_WORLD);
  std::vector<long> memory(kLongest + 1);
  MPI_Win window;
  MPI_Win_create(memory.data(), static_cast<MPI_Aint>(memory.size() * sizeof(long)), sizeof(long),
                 MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  MPI_Barrier(MPI_COMM_WORLD);
  int round = 0;
  for (const int count : {1, 1'000, kLongest}) {
    for (int i = 0; i < 30; ++i)
      check(window, memory, round++, count);
  }
  MPI_Win_free(&window);
  MPI_Finalize();
  return 0;
}
