// Rank 1 runs out of memory in the first call of a process, and of communicators, at each allocation in turn,
// and makes a call that failed again: no rank takes another call for that one, and all ranks count the same
// calls, so that heddle takes over on all of them at once.
#include <algorithm>

#include "job.hpp"
#include "support/failing_allocations.hpp"

namespace {

constexpr int kTakeOver = 3;
constexpr int kMuch = 5 << 16;  // with which the set-up of a communicator pays

// The first call that succeeds, of one with each allocation in turn failing. Returns how many did not.
int sum_short_of_memory(const int* in, int* out, MPI_Comm comm) {
  for (int failed = 0;; ++failed) {
    heddle::test::allocations_left = failed;
    const int rc = MPI_Allreduce(in, out, kMuch, MPI_INT, MPI_SUM, comm);
    heddle::test::allocations_left = -1;
    if (rc == MPI_SUCCESS) return failed;
  }
}

int begin(MPI_Comm comm) {
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  const int rank = job::rank_of(comm);
  const int size = job::size_of(comm);
  std::vector<int> in(kMuch);
  std::vector<int> out(kMuch);
  int failed = 0;
  for (int number = 1; number <= kTakeOver; ++number) {
    const int count = number == 1 ? kMuch : 1;
    std::fill(in.begin(), in.end(), 100 * number + rank);
    if (rank == 1 && number == 1)
      failed = sum_short_of_memory(in.data(), out.data(), comm);
    else if (MPI_Allreduce(in.data(), out.data(), count, MPI_INT, MPI_SUM, comm) != MPI_SUCCESS)
      job::fail("call %d: error", number);
    const int sum = size * 100 * number + size * (size - 1) / 2;
    if (out[0] != sum || out[static_cast<std::size_t>(count) - 1] != sum)
      job::fail("call %d: %d", number, out[0]);
  }
  if (job::served_by(0, 1024, comm) == "host") job::fail("heddle has not taken over");
  return failed;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int rank = job::rank_of(MPI_COMM_WORLD);
  // Loads what heddle needs, whose constructors may not fail.
  void* little = nullptr;
  MPI_Alloc_mem(64, MPI_INFO_NULL, &little);
  MPI_Free_mem(little);
  const int failed = begin(MPI_COMM_WORLD);
  if (rank == 1 && failed == 0) job::fail("no allocation failed");
  std::printf("%d first calls of rank %d failed\n", failed, rank);
  for (int i = 0; i < 4; ++i) {
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    begin(comm);
  }
  MPI_Finalize();
  return 0;
}
