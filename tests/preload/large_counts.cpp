// Programs that look for MPI-4's large-count functions at run time, as mpi4py's wheels do: what they find
// works, also where the host has none.
#include <climits>

#include "job.hpp"

namespace {

template <typename Function>
Function find(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const int rank = job::rank_of(MPI_COMM_WORLD);
  const int size = job::size_of(MPI_COMM_WORLD);
  using Sendrecv = int (*)(const void*, MPI_Count, MPI_Datatype, int, int, void*, MPI_Count, MPI_Datatype,
                           int, int, MPI_Comm, MPI_Status*);
  using Iallgather =
      int (*)(const void*, MPI_Count, MPI_Datatype, void*, MPI_Count, MPI_Datatype, MPI_Comm, MPI_Request*);
  const auto sendrecv = find<Sendrecv>("MPI_Sendrecv_c");
  const auto iallgather = find<Iallgather>("MPI_Iallgather_c");
  if (sendrecv == nullptr || iallgather == nullptr) job::fail("not found");
  int theirs = -1;
  if (sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 3, &theirs, 1, MPI_INT, (rank + size - 1) % size, 3,
               MPI_COMM_WORLD, MPI_STATUS_IGNORE) != MPI_SUCCESS ||
      theirs != (rank + size - 1) % size)
    job::fail("MPI_Sendrecv_c: %d", theirs);
  std::vector<int> all(static_cast<std::size_t>(size));
  MPI_Request request;
  if (iallgather(&rank, 1, MPI_INT, all.data(), 1, MPI_INT, MPI_COMM_WORLD, &request) != MPI_SUCCESS ||
      MPI_Wait(&request, MPI_STATUS_IGNORE) != MPI_SUCCESS || all.back() != size - 1)
    job::fail("MPI_Iallgather_c");
#if MPI_VERSION < 4
  if (sendrecv(&rank, MPI_Count{INT_MAX} + 1, MPI_INT, rank, 3, &theirs, 1, MPI_INT, rank, 3, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE) == MPI_SUCCESS)
    job::fail("more than the host can take");
  // What cannot be done is not to be found.
  for (const char* name : {"MPI_Gatherv_c", "MPI_Alltoallw_c", "MPI_Ireduce_scatter_c"}) {
    if (dlsym(RTLD_DEFAULT, name) != nullptr) job::fail("%s is found", name);
  }
#endif
  MPI_Finalize();
  return 0;
}
