// HEDDLE_CHECK=1: ranks that do not call the same get an error on all ranks, whatever differs, nothing is in their buffers, and the communicator serves the next
// calls. Calls that MPI allows to look different are served.
#include "job.hpp"

namespace {

struct Buffers {
  int in[64];
  int out[64];
};

using Call = int (*)(Buffers& b, MPI_Comm comm);

constexpr Call kCalls[] = {
    [](Buffers& b, MPI_Comm comm) { return MPI_Allreduce(b.in, b.out, 8, MPI_INT, MPI_SUM, comm); },
    [](Buffers& b, MPI_Comm comm) { return MPI_Allreduce(b.in, b.out, 9, MPI_INT, MPI_SUM, comm); },
    [](Buffers& b, MPI_Comm comm) { return MPI_Allreduce(b.in, b.out, 0, MPI_INT, MPI_SUM, comm); },
    [](Buffers& b, MPI_Comm comm) { return MPI_Allreduce(b.in, b.out, 8, MPI_FLOAT, MPI_SUM, comm); },
    [](Buffers& b, MPI_Comm comm) { return MPI_Allreduce(b.in, b.out, 8, MPI_INT, MPI_BXOR, comm); },
    // The host's.
    [](Buffers& b, MPI_Comm comm) { return MPI_Allreduce(b.in, b.out, 4, MPI_2INT, MPI_MINLOC, comm); },
    // Both think that they are the root.
    [](Buffers& b, MPI_Comm comm) { return MPI_Bcast(b.out, 8, MPI_INT, 0, comm); },
    [](Buffers& b, MPI_Comm comm) { return MPI_Bcast(b.out, 8, MPI_INT, 1, comm); },
    [](Buffers& b, MPI_Comm comm) { return MPI_Bcast(b.out, 9, MPI_INT, 0, comm); },
    // Mistakes of one rank.
    [](Buffers& b, MPI_Comm comm) { return MPI_Bcast(b.out, -1, MPI_INT, 0, comm); },
    [](Buffers& b, MPI_Comm comm) { return MPI_Bcast(b.out, 8, MPI_INT, 100, comm); },
    [](Buffers& b, MPI_Comm comm) { return MPI_Allreduce(b.in, b.in, 8, MPI_INT, MPI_SUM, comm); },
};
// What the other ranks call; heddle waits for 0.2 s each time, for its words to arrive.
constexpr std::size_t kOthers[] = {0, 6};

void fill(Buffers& b) {
  for (int i = 0; i < 64; ++i) {
    b.in[i] = i;
    b.out[i] = -7;
  }
}

void check_differing(MPI_Comm comm) {
  const int rank = job::rank_of(comm);
  Buffers b;
  for (const std::size_t others : kOthers) {
    for (std::size_t one = 0; one < sizeof kCalls / sizeof kCalls[0]; ++one) {
      if (one == others) continue;
      fill(b);
      if (kCalls[rank == 1 ? one : others](b, comm) == MPI_SUCCESS)
        job::fail("calls %zu and %zu are taken for the same", others, one);
      for (const int x : b.out) {
        if (x != -7) job::fail("calls %zu and %zu: there is a result", others, one);
      }
    }
  }
}

void check_served(MPI_Comm comm) {
  const int rank = job::rank_of(comm);
  const int size = job::size_of(comm);
  Buffers b;
  for (int i = 0; i < 3; ++i) {
    fill(b);
    if (MPI_Allreduce(b.in, b.out, 64, MPI_INT, MPI_SUM, comm) != MPI_SUCCESS || b.out[63] != 63 * size)
      job::fail("allreduce");
    if (MPI_Allreduce(MPI_IN_PLACE, b.in, 64, MPI_INT, MPI_MAX, comm) != MPI_SUCCESS || b.in[63] != 63)
      job::fail("in place");
    if (MPI_Allreduce(b.in, b.out, 2, MPI_2INT, MPI_MINLOC, comm) != MPI_SUCCESS || b.out[0] != 0)
      job::fail("by the host");
    if (MPI_Allreduce(nullptr, nullptr, 0, MPI_INT, MPI_SUM, comm) != MPI_SUCCESS) job::fail("of nothing");
  }
  // One signature, two datatypes.
  MPI_Datatype pair;
  MPI_Type_contiguous(2, MPI_INT, &pair);
  MPI_Type_commit(&pair);
  fill(b);
  const int rc = rank == 0 ? MPI_Bcast(b.in, 32, pair, 0, comm) : MPI_Bcast(b.out, 64, MPI_INT, 0, comm);
  if (rc != MPI_SUCCESS || (rank != 0 && b.out[63] != 63)) job::fail("bcast of two datatypes");
  MPI_Type_free(&pair);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  job::warm_up(MPI_COMM_WORLD);
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  job::warm_up(comm);
  check_served(comm);
  check_differing(comm);
  check_served(comm);
  MPI_Comm_free(&comm);
  check_served(MPI_COMM_WORLD);
  MPI_Finalize();
  return 0;
}
