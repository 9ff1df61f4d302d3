// Sums of small integers, which one rank's host may compute in another way than another's, as Open MPI 4.1
// does on cores of different kinds: whoever serves them, it is the same on all ranks, and the rest is
// heddle's.
#include "job.hpp"

namespace {

template <typename T>
void sum_some(MPI_Comm comm, MPI_Datatype type, const char* name) {
  T in[200];
  T out[200];
  for (T& one : in)
    one = static_cast<T>(job::rank_of(comm) + 1);
  MPI_Allreduce(in, out, 200, type, MPI_SUM, comm);
  const int size = job::size_of(comm);
  for (const T one : out) {
    if (one != static_cast<T>(size * (size + 1) / 2)) job::fail("%s: %d", name, static_cast<int>(one));
  }
}

void sum_all(MPI_Comm comm) {
  for (int i = 0; i < 5; ++i) {
    sum_some<std::int8_t>(comm, MPI_INT8_T, "MPI_INT8_T");
    sum_some<std::uint8_t>(comm, MPI_UINT8_T, "MPI_UINT8_T");
    sum_some<short>(comm, MPI_SHORT, "MPI_SHORT");
    sum_some<int>(comm, MPI_INT, "MPI_INT");
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  sum_all(comm);  // before heddle is set up
  job::warm_up(comm);
  sum_all(comm);
  job::warm_up(MPI_COMM_WORLD);
  sum_all(MPI_COMM_WORLD);
  MPI_Comm_free(&comm);
  MPI_Finalize();
  return 0;
}
