// HEDDLE_CHECK=1: ranks that do not call the same get an error on all ranks, whatever differs, nothing is in
// their buffers, and the communicator serves the next calls. Calls that MPI allows to look different are
// served.
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
    [](Buffers& /*b*/, MPI_Comm comm) { return MPI_Barrier(comm); },
    [](Buffers& b, MPI_Comm comm) { return MPI_Reduce(b.in, b.out, 8, MPI_INT, MPI_SUM, 0, comm); },
    [](Buffers& b, MPI_Comm comm) { return MPI_Reduce(b.in, b.out, 8, MPI_INT, MPI_SUM, 1, comm); },
    [](Buffers& b, MPI_Comm comm) { return MPI_Reduce(b.in, b.out, 8, MPI_INT, MPI_MAX, 0, comm); },
    [](Buffers& b, MPI_Comm comm) { return MPI_Reduce(b.in, b.out, 4, MPI_2INT, MPI_MINLOC, 0, comm); },
    [](Buffers& b, MPI_Comm comm) { return MPI_Allgather(b.in, 8, MPI_INT, b.out, 8, MPI_INT, comm); },
    [](Buffers& b, MPI_Comm comm) { return MPI_Allgather(b.in, 9, MPI_INT, b.out, 9, MPI_INT, comm); },
    [](Buffers& b, MPI_Comm comm) { return MPI_Allgather(b.in, 0, MPI_INT, b.out, 0, MPI_INT, comm); },
    // Mistakes of one rank.
    [](Buffers& b, MPI_Comm comm) { return MPI_Allgather(b.in, 7, MPI_INT, b.out, 8, MPI_INT, comm); },
    [](Buffers& b, MPI_Comm comm) { return MPI_Bcast(b.out, -1, MPI_INT, 0, comm); },
    [](Buffers& b, MPI_Comm comm) { return MPI_Bcast(b.out, 8, MPI_INT, 100, comm); },
    [](Buffers& b, MPI_Comm comm) { return MPI_Allreduce(b.in, b.in, 8, MPI_INT, MPI_SUM, comm); },
    [](Buffers& b, MPI_Comm comm) { return MPI_Reduce(b.in, b.out, 8, MPI_INT, MPI_SUM, 100, comm); },
};
// What the other ranks call; heddle waits for 0.2 s each time, for its words to arrive.
constexpr std::size_t kOthers[] = {0, 6, 9, 10, 14};

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
      const int error = kCalls[rank == 1 ? one : others](b, comm);
      if (error == MPI_SUCCESS) job::fail("calls %zu and %zu are taken for the same", others, one);
      // Not that of a buffer, which is what MPI would say then.
      int error_class = MPI_SUCCESS;
      if (MPI_Error_class(error, &error_class); error_class != MPI_ERR_OTHER)
        job::fail("calls %zu and %zu: error class %d", others, one, error_class);
      for (const int x : b.out) {
        if (x != -7) job::fail("calls %zu and %zu: there is a result", others, one);
      }
    }
  }
}

void add(void* in, void* out, int* /*count*/, MPI_Datatype* /*type*/) {
  *static_cast<int*>(out) += *static_cast<int*>(in);
}

// An operation of the program's own, and an address in the datatype.
void check_absolute(MPI_Comm comm) {
  int x = 1;
  MPI_Aint at = 0;
  MPI_Get_address(&x, &at);
  int one = 1;
  MPI_Datatype type;
  MPI_Type_create_hindexed(1, &one, &at, MPI_INT, &type);
  MPI_Type_commit(&type);
  int y = job::rank_of(comm);
  if (job::rank_of(comm) == 0) x = 5;
  if (MPI_Bcast(MPI_BOTTOM, 1, type, 0, comm) != MPI_SUCCESS || x != 5) job::fail("bcast at an address");
  MPI_Type_free(&type);
  MPI_Op op;
  MPI_Op_create(add, 1, &op);
  const int rc = MPI_Allreduce(MPI_IN_PLACE, &y, 1, MPI_INT, op, comm);
  if (rc != MPI_SUCCESS || y != job::size_of(comm) * (job::size_of(comm) - 1) / 2)
    job::fail("an operation of its own");
  MPI_Op_free(&op);
}

// From a null buffer on some ranks, as an empty vector has.
void check_of_nothing(MPI_Comm comm) {
  const bool is_null = job::rank_of(comm) % 2 == 0;
  int x[4] = {};
  int lengths[2] = {0, 0};
  MPI_Aint at[2] = {0, 8};
  MPI_Datatype kinds[2] = {MPI_INT, MPI_DOUBLE};
  MPI_Datatype empty;
  MPI_Type_create_struct(2, lengths, at, kinds, &empty);
  MPI_Type_commit(&empty);
  lengths[0] = lengths[1] = 1;
  MPI_Datatype pair;
  MPI_Type_create_struct(2, lengths, at, kinds, &pair);
  MPI_Type_commit(&pair);
  void* const buffer = is_null ? nullptr : x;
  if (MPI_Bcast(buffer, 0, pair, 0, comm) != MPI_SUCCESS) job::fail("bcast of no structs");
  if (MPI_Bcast(buffer, 3, empty, 0, comm) != MPI_SUCCESS) job::fail("bcast of empty structs");
  if (MPI_Bcast(buffer, 0, MPI_INT, 0, comm) != MPI_SUCCESS) job::fail("bcast of no integers");
  if (MPI_Allreduce(buffer, nullptr, 0, MPI_INT, MPI_SUM, comm) != MPI_SUCCESS)
    job::fail("allreduce of nothing");
  if (MPI_Allgather(buffer, 0, pair, is_null ? x : nullptr, 0, MPI_INT, comm) != MPI_SUCCESS ||
      MPI_Allgather(x, 3, empty, x + 2, 3, empty, comm) != MPI_SUCCESS)
    job::fail("allgather of nothing");
  MPI_Type_free(&empty);
  MPI_Type_free(&pair);
}

void check_served(MPI_Comm comm) {
  const int rank = job::rank_of(comm);
  const int size = job::size_of(comm);
  Buffers b;
  for (int i = 0; i < 3; ++i) {
    if (MPI_Barrier(comm) != MPI_SUCCESS) job::fail("barrier");
    fill(b);
    if (MPI_Allreduce(b.in, b.out, 64, MPI_INT, MPI_SUM, comm) != MPI_SUCCESS || b.out[63] != 63 * size)
      job::fail("allreduce");
    if (MPI_Allreduce(MPI_IN_PLACE, b.in, 64, MPI_INT, MPI_MAX, comm) != MPI_SUCCESS || b.in[63] != 63)
      job::fail("in place");
    if (MPI_Allreduce(b.in, b.out, 2, MPI_2INT, MPI_MINLOC, comm) != MPI_SUCCESS || b.out[0] != 0)
      job::fail("by the host");
    if (MPI_Allreduce(nullptr, nullptr, 0, MPI_INT, MPI_SUM, comm) != MPI_SUCCESS) job::fail("of nothing");
  }
  // Programs mix them.
  fill(b);
  if (MPI_Allreduce(b.in, b.out, 8, rank == 0 ? MPI_UNSIGNED : MPI_INT, MPI_SUM, comm) != MPI_SUCCESS ||
      b.out[7] != 7 * size)
    job::fail("unsigned");
  check_absolute(comm);
  check_of_nothing(comm);
  // A mistake of all is the host's to judge.
  int error_class = MPI_SUCCESS;
  if (comm != MPI_COMM_WORLD &&
      (MPI_Error_class(MPI_Bcast(b.out, 8, MPI_INT, 100, comm), &error_class), error_class != MPI_ERR_ROOT))
    job::fail("a mistake of all: error class %d", error_class);
  // One signature, two datatypes.
  MPI_Datatype pair;
  MPI_Type_contiguous(2, MPI_INT, &pair);
  MPI_Type_commit(&pair);
  fill(b);
  const int rc = rank == 0 ? MPI_Bcast(b.in, 32, pair, 0, comm) : MPI_Bcast(b.out, 64, MPI_INT, 0, comm);
  if (rc != MPI_SUCCESS || (rank != 0 && b.out[63] != 63)) job::fail("bcast of two datatypes");
  fill(b);
  b.in[1] = rank;
  if ((rank == 0 ? MPI_Allgather(b.in, 2, MPI_INT, b.out, 1, pair, comm)
                 : MPI_Allgather(b.in, 1, pair, b.out, 2, MPI_INT, comm)) != MPI_SUCCESS ||
      b.out[2 * size - 1] != size - 1)
    job::fail("allgather of two datatypes");
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
