// A program that does its last collectives, and MPI_Finalize, in what it gave to atexit() before anything of
// heddle was loaded: what heddle has registered to be destroyed runs before that.
#include "job.hpp"

namespace {

void use(MPI_Comm comm, int count) {
  std::vector<double> values(static_cast<std::size_t>(count), job::rank_of(comm));
  MPI_Allreduce(MPI_IN_PLACE, values.data(), count, MPI_DOUBLE, MPI_SUM, comm);
  const int size = job::size_of(comm);
  if (values.back() != size * (size - 1) / 2.0) job::fail("sum of %d at exit: %g", count, values.back());
  MPI_Bcast(values.data(), count, MPI_DOUBLE, size - 1, comm);
}

void last_words() {
  for (const int count : {1, 1000, 30'000, 1'000'000})  // not chosen yet
    use(MPI_COMM_WORLD, count);
  MPI_Comm later;
  MPI_Comm_dup(MPI_COMM_WORLD, &later);
  job::warm_up(later);
  use(later, 5000);
  MPI_Comm_free(&later);
  const int rank = job::rank_of(MPI_COMM_WORLD);
  MPI_Finalize();
  if (rank == 0) std::puts("at exit: done");
}

}  // namespace

int main(int argc, char** argv) {
  std::atexit(last_words);
  MPI_Init(&argc, &argv);
  job::warm_up(MPI_COMM_WORLD);
  return 0;
}
