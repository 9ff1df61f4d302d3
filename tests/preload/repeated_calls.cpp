// HEDDLE_CHECK=2 where a call cannot give what the host gives: input and output of rank 1 are the same memory
// by two addresses. Every rank gets an error, the communicator serves on, and all of that is said of calls by
// heddle alone.
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "job.hpp"

namespace {

constexpr int kCount = 100;

// The same page twice.
struct Twice {
  int* in;
  int* out;
};

Twice map_twice() {
  const int file = ::memfd_create("twice", 0);
  if (file < 0 || ::ftruncate(file, 4096) != 0) job::fail("no memory");
  void* pages[2];
  for (void*& page : pages) {
    page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (page == MAP_FAILED) job::fail("no memory");
  }
  ::close(file);
  return {static_cast<int*>(pages[0]), static_cast<int*>(pages[1])};
}

void fill(int* x) {
  for (int i = 0; i < kCount; ++i)
    x[i] = i;
}

void check_served(MPI_Comm comm) {
  int in[kCount];
  int out[kCount];
  fill(in);
  if (MPI_Allreduce(in, out, kCount, MPI_INT, MPI_SUM, comm) != MPI_SUCCESS ||
      out[kCount - 1] != (kCount - 1) * job::size_of(comm))
    job::fail("a sum");
  if (MPI_Allreduce(MPI_IN_PLACE, in, kCount, MPI_INT, MPI_SUM, comm) != MPI_SUCCESS || in[1] != out[1])
    job::fail("a sum in place");
  fill(in);
  const bool is_root = job::rank_of(comm) == 1;
  if (MPI_Reduce(is_root ? MPI_IN_PLACE : in, in, kCount, MPI_INT, MPI_SUM, 1, comm) != MPI_SUCCESS ||
      in[1] != (is_root ? out[1] : 1))
    job::fail("a reduce");
  MPI_Datatype column;
  MPI_Type_vector(kCount / 2, 1, 2, MPI_INT, &column);
  MPI_Type_commit(&column);
  fill(in);
  if (job::rank_of(comm) == 1) in[2] = 1000;
  if (MPI_Bcast(in, 1, column, 1, comm) != MPI_SUCCESS || in[2] != 1000 || in[3] != 3) job::fail("a bcast");
  MPI_Type_free(&column);
  const int rank = job::rank_of(comm);
  std::vector<int> all(static_cast<std::size_t>(job::size_of(comm)) * kCount);
  for (int times = 0; times < 2; ++times) {
    std::fill(in, in + kCount, 7 * rank);
    int* const own = all.data() + static_cast<std::ptrdiff_t>(rank) * kCount;
    if (times == 1) std::copy(in, in + kCount, own);
    const void* const mine = times == 1 ? MPI_IN_PLACE : in;
    if (MPI_Allgather(mine, kCount, MPI_INT, all.data(), kCount, MPI_INT, comm) != MPI_SUCCESS ||
        all.back() != 7 * (job::size_of(comm) - 1))
      job::fail("an allgather");
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  job::warm_up(comm);
  check_served(comm);
  const Twice twice = map_twice();
  int apart[kCount];
  fill(twice.in);
  int* const out = job::rank_of(comm) == 1 ? twice.out : apart;
  if (MPI_Allreduce(twice.in, out, kCount, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS)
    job::fail("another result than the host's is none to be told of");
  check_served(comm);
  fill(twice.in);
  if (MPI_Reduce(twice.in, out, kCount, MPI_INT, MPI_SUM, 1, comm) == MPI_SUCCESS)
    job::fail("another result of a reduce than the host's is none to be told of");
  check_served(comm);
  // What comes of rank 0 is written over what rank 1 has given.
  std::fill(twice.in, twice.in + kCount, job::rank_of(comm));
  std::vector<int> all(static_cast<std::size_t>(job::size_of(comm)) * kCount);
  if (MPI_Allgather(twice.in, kCount, MPI_INT, job::rank_of(comm) == 1 ? twice.out : all.data(), kCount,
                    MPI_INT, comm) == MPI_SUCCESS)
    job::fail("another allgather than the host's is none to be told of");
  check_served(comm);
  MPI_Comm_free(&comm);
  MPI_Finalize();
  return 0;
}
