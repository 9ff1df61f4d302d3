#include "common/host_mpi.hpp"

#include <algorithm>

#include "heddle/heddle_mpi.h"
#include "tools/leave_mpi.hpp"

namespace heddle::bench::host {
bool built_in() {
  return true;
}

std::string library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  if (PMPI_Get_library_version(text, &length) != MPI_SUCCESS) return "unknown";
  // The first line names it; what follows lists how it was configured.
  std::string line(text, static_cast<std::size_t>(length));
  line.resize(std::min(line.find('\n'), line.size()));
  for (char& c : line)
    if (c == '\t') c = ' ';
  return line;
}

bool start(int* argc, char*** argv, bool /*native*/, bool threads, std::string& problem) {
  const int wanted = threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
  int provided = MPI_THREAD_SINGLE;
  if (MPI_Init_thread(argc, argv, wanted, &provided) != MPI_SUCCESS) {
    problem = "MPI_Init_thread failed";
    return false;
  }
  if (provided < wanted) {
    problem = "this needs MPI_THREAD_MULTIPLE, which the host MPI does not provide";
    finish();
    return false;
  }
  return true;
}

void finish() {
  tools::meet_before_finalize(MPI_COMM_WORLD);
  MPI_Finalize();
}

int rank() {
  int rank = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

int size() {
  int size = 1;
  PMPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

int rank_on_machine() {
  int local = 0;
  MPI_Comm machine = MPI_COMM_NULL;
  PMPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
  PMPI_Comm_rank(machine, &local);
  PMPI_Comm_free(&machine);
  return local;
}

void reduce(std::span<double> values, bool largest) {
  PMPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_DOUBLE,
                 largest ? MPI_MAX : MPI_SUM, MPI_COMM_WORLD);
}

void barrier() {
  PMPI_Barrier(MPI_COMM_WORLD);
}

heddle_status make_comm(heddle_comm_t* comm) {
  return heddle_comm_create_mpi(MPI_COMM_WORLD, comm);
}

void abort() {
  tools::abort_mpi();
}

}  // namespace heddle::bench::host
