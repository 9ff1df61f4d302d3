// One rank makes a mistake, is told so, and makes the call again as it should be: before heddle takes a
// communicator over, when it would, and later. The other ranks know nothing of it.
#include "job.hpp"

namespace {

// One of them fails on this rank alone; all without a message to another rank.
using Mistake = int (*)(MPI_Comm comm);

int negative_count(MPI_Comm comm) {
  int x = 0;
  return MPI_Bcast(&x, -1, MPI_INT, 0, comm);
}
int wrong_root(MPI_Comm comm) {
  int x = 0;
  return MPI_Bcast(&x, 1, MPI_INT, job::size_of(comm), comm);
}
int wrong_root_of_a_sum(MPI_Comm comm) {
  int x = 1;
  int sum = 0;
  return MPI_Reduce(&x, &sum, 1, MPI_INT, MPI_SUM, -7, comm);
}
int aliased_at_the_root(MPI_Comm comm) {
  int both[2] = {1, 1};
  return MPI_Reduce(both, both, 2, MPI_INT, MPI_SUM, job::rank_of(comm), comm);
}
int one_aliased_at_the_root(MPI_Comm comm) {
  int both = 1;
  return MPI_Reduce(&both, &both, 1, MPI_INT, MPI_SUM, job::rank_of(comm), comm);
}
int negative_count_of_all(MPI_Comm comm) {
  int x = 0;
  int all[64] = {};
  return MPI_Allgather(&x, 1, MPI_INT, all, -1, MPI_INT, comm);
}
#ifndef OPEN_MPI  // which takes it
int given_in_place(MPI_Comm comm) {
  int all[64] = {};
  return MPI_Allgather(all + job::rank_of(comm), 1, MPI_INT, all, 1, MPI_INT, comm);
}
#endif
int no_such_sum(MPI_Comm comm) {
  float in = 1;
  float out = 0;
  return MPI_Allreduce(&in, &out, 1, MPI_FLOAT, MPI_BAND, comm);
}
int no_operation(MPI_Comm comm) {
  int in = 1;
  int out = 0;
  return MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_OP_NULL, comm);
}
int aliased(MPI_Comm comm) {
  int both[2] = {1, 1};
  return MPI_Allreduce(both, both, 2, MPI_INT, MPI_SUM, comm);
}
int uncommitted(MPI_Comm comm) {
  MPI_Datatype type;
  MPI_Type_vector(2, 1, 2, MPI_INT, &type);
  int x[4] = {};
  const int rc = MPI_Bcast(x, 1, type, 0, comm);
  MPI_Type_free(&type);
  return rc;
}
#ifndef OPEN_MPI
int no_buffer(MPI_Comm comm) {
  return MPI_Bcast(nullptr, 4, MPI_INT, 0, comm);
}
#endif

const Mistake kMistakes[] = {negative_count,
                             wrong_root,
                             wrong_root_of_a_sum,
                             aliased_at_the_root,
                             one_aliased_at_the_root,
                             negative_count_of_all,
#ifndef OPEN_MPI
                             given_in_place,
#endif
                             no_such_sum,
                             no_operation,
                             aliased,
#ifndef OPEN_MPI
                             no_buffer,
#endif
                             uncommitted};

// One element in one buffer: no mistake to Open MPI, and so none on one rank alone.
#ifdef OPEN_MPI
constexpr bool kTakesOneForBoth = true;
#else
constexpr bool kTakesOneForBoth = false;
#endif

// Before the `at`-th pair of calls: heddle takes the communicator over at the second.
void check(Mistake mistake, int at) {
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  job::make_worthwhile(comm);
  const int rank = job::rank_of(comm);
  const int size = job::size_of(comm);
  for (int i = 0; i < 6; ++i) {
    if (rank == size - 1 && i == at && mistake(comm) == MPI_SUCCESS)
      job::fail("the host does not mind; the case proves nothing");
    int x = rank == 0 ? i + 1 : -1;
    MPI_Bcast(&x, 1, MPI_INT, 0, comm);
    if (x != i + 1) job::fail("bcast %d after a mistake in %d: %d", i, at, x);
    int sum = 0;
    if (i > 0 && kTakesOneForBoth && rank == size - 1)
      MPI_Allreduce(&(sum = x), &sum, 1, MPI_INT, MPI_SUM, comm);
    else if (i > 0)
      MPI_Allreduce(&x, &sum, 1, MPI_INT, MPI_SUM, comm);
    if (i > 0 && sum != size * x) job::fail("sum %d after a mistake in %d: %d", i, at, sum);
    int at_root = -1;
    MPI_Reduce(&x, &at_root, 1, MPI_INT, MPI_SUM, i % size, comm);
    if (at_root != (rank == i % size ? size * x : -1))
      job::fail("reduce %d after a mistake in %d: %d", i, at, at_root);
    int all[64] = {};
    // One that Open MPI takes on one rank alone.
    const bool in_its_place = kTakesOneForBoth && rank == size - 1;
    const int mine = 100 * i + rank;
    if (in_its_place) all[rank] = mine;
    MPI_Allgather(in_its_place ? all + rank : &mine, 1, MPI_INT, all, 1, MPI_INT, comm);
    for (int r = 0; r < size; ++r) {
      if (all[r] != 100 * i + r) job::fail("allgather %d after a mistake in %d: %d of %d", i, at, all[r], r);
    }
  }
  if (job::served_by(0, 8, comm) == "host") job::fail("left to the host");
  MPI_Comm_free(&comm);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);  // where Open MPI reports some
  for (const Mistake mistake : kMistakes) {
    for (int at = 0; at < 5; ++at)
      check(mistake, at);
  }
  MPI_Finalize();
  return 0;
}
