// Collectives in a callback of MPI_Finalize, of an attribute of MPI_COMM_SELF, as HDF5 has one to close its
// files: on some ranks it was set before heddle met its first collective, on others after that. MPI runs
// these callbacks in the opposite order.
#include "job.hpp"

namespace {

MPI_Comm everybody;

int in_finalize(MPI_Comm, int, void*, void*) {
  for (int i = 0; i < 5; ++i)
    job::sum_in_finalize(everybody);
  return MPI_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const bool early = job::rank_of(MPI_COMM_WORLD) % 2 == 0;
  MPI_Comm half;
  MPI_Comm_split(MPI_COMM_WORLD, early ? 0 : 1, 0, &half);
  int value = 0;
  if (early) MPI_Bcast(&value, 1, MPI_INT, 0, half);
  int keyval;
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, in_finalize, &keyval, nullptr);
  MPI_Comm_set_attr(MPI_COMM_SELF, keyval, nullptr);
  MPI_Comm_dup(MPI_COMM_WORLD, &everybody);
  job::warm_up(everybody);
  MPI_Comm_free(&half);
  MPI_Finalize();
  return 0;
}
