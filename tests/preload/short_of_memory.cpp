// Rank 1 runs out of memory while heddle takes the communicator over: the others are in that and wait, and
// none of its later calls may take the place of this one. Ends by the deadline of those that wait.
#include "job.hpp"
#include "support/failing_allocations.hpp"

namespace {

constexpr int kTakeOver = 3;

void call(int number, int rank, int size, bool may_fail) {
  const int mine = 100 * number + rank;
  int sum = 0;
  if (MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD) != MPI_SUCCESS) {
    if (!may_fail) job::fail("call %d: error", number);
    return;
  }
  if (rank == 1 && number >= kTakeOver) job::fail("call %d: no error", number);
  if (sum != size * 100 * number + size * (size - 1) / 2) job::fail("call %d: %d", number, sum);
}

}  // namespace

// The argument: how many allocations there are before the one that fails.
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const int rank = job::rank_of(MPI_COMM_WORLD);
  const int size = job::size_of(MPI_COMM_WORLD);
  for (int i = 1; i <= kTakeOver + 3; ++i) {
    if (rank == 1 && i == kTakeOver) heddle::test::allocations_left = std::atol(argv[1]);
    call(i, rank, size, i >= kTakeOver);
  }
  std::puts("all calls of rank 1 were refused");
  std::fflush(stdout);
  MPI_Finalize();
  return 0;
}
