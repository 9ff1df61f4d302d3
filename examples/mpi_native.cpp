// clang-format off
// The native API in an MPI program: a communicator made from an MPI communicator, used beside MPI's own calls. In the repository, installed into dist/:
//
//   export PKG_CONFIG_PATH=$PWD/dist/lib/pkgconfig
//   mpicxx.mpich -std=c++20 examples/mpi_native.cpp $(pkg-config --cflags --libs heddle) -Wl,-rpath,$PWD/dist/lib -o mpi_native
//   mpiexec.mpich -n 2 ./mpi_native
// clang-format on
#include <heddle/heddle_mpi.h>
#include <mpi.h>

#include <cstdio>
#include <vector>

namespace {

bool failed(const char* what, heddle_status status) {
  if (status == HEDDLE_OK) return false;
  std::fprintf(stderr, "mpi_native: %s: %s: %s\n", what, heddle_status_name(status), heddle_last_error());
  return true;
}

// Sums a million numbers with heddle and with MPI, and says whether both found the same.
bool compare(MPI_Comm mpi, heddle_comm_t comm, int rank) {
  std::vector<double> mine(1'000'000, rank + 1.0);
  std::vector<double> by_heddle(mine.size());
  std::vector<double> by_mpi(mine.size());
  if (failed("heddle_allreduce", heddle_allreduce(mine.data(), by_heddle.data(), mine.size(), HEDDLE_FLOAT64,
                                                  HEDDLE_SUM, comm))) {
    return false;
  }
  MPI_Allreduce(mine.data(), by_mpi.data(), static_cast<int>(mine.size()), MPI_DOUBLE, MPI_SUM, mpi);
  const char* algorithm = "";
  if (failed("heddle_allreduce_algorithm",
             heddle_allreduce_algorithm(mine.size(), HEDDLE_FLOAT64, HEDDLE_SUM, comm, &algorithm))) {
    return false;
  }
  const bool same = by_heddle == by_mpi;
  if (rank == 0)
    std::printf("%s: each of %zu sums is %.0f; %s\n", algorithm, mine.size(), by_heddle[0],
                same ? "MPI agrees" : "MPI differs");
  return same;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  heddle_comm_t comm = nullptr;
  bool good = !failed("heddle_comm_create_mpi", heddle_comm_create_mpi(MPI_COMM_WORLD, &comm));
  if (good) {
    good = compare(MPI_COMM_WORLD, comm, rank);
    if (failed("heddle_comm_destroy", heddle_comm_destroy(comm))) good = false;  // before MPI_Finalize
  }
  MPI_Finalize();
  return good ? 0 : 1;
}
