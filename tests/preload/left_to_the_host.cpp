// What heddle does not serve works as ever, between calls that it does serve: user-defined operations, also
// on predefined types and not commutative; pairs; intercommunicators; a communicator of one rank; use inside
// callbacks of MPI_Finalize.
#include "job.hpp"

namespace {

// Keeps the left operand's first and the right operand's last: not commutative, but associative.
void first_and_last(void* in, void* inout, int* count, MPI_Datatype*) {
  const auto* a = static_cast<int*>(in);
  auto* b = static_cast<int*>(inout);
  for (int i = 0; i + 1 < *count; i += 2)
    b[i] = a[i];
}

void user_operation(MPI_Comm comm) {
  MPI_Op op;
  MPI_Op_create(first_and_last, 0, &op);
  const int mine[2] = {job::rank_of(comm), job::rank_of(comm)};
  int result[2] = {-1, -1};
  MPI_Allreduce(mine, result, 2, MPI_INT, op, comm);
  if (result[0] != 0 || result[1] != job::size_of(comm) - 1)
    job::fail("user operation: %d %d", result[0], result[1]);
  const int root = job::size_of(comm) / 2;
  int at_root[2] = {-1, -1};
  MPI_Reduce(mine, at_root, 2, MPI_INT, op, root, comm);
  const bool is_root = job::rank_of(comm) == root;
  if (at_root[0] != (is_root ? 0 : -1) || at_root[1] != (is_root ? job::size_of(comm) - 1 : -1))
    job::fail("user operation at one rank: %d %d", at_root[0], at_root[1]);
  MPI_Op_free(&op);
}

void pairs(MPI_Comm comm) {
  struct {
    double value;
    int place;
  } mine = {static_cast<double>(job::rank_of(comm) % 2), job::rank_of(comm)}, best = {-1, -1};
  MPI_Allreduce(&mine, &best, 1, MPI_DOUBLE_INT, MPI_MAXLOC, comm);
  const int wanted = job::size_of(comm) > 1 ? 1 : 0;
  if (best.value != wanted || best.place != wanted) job::fail("MPI_MAXLOC: %g at %d", best.value, best.place);
  best = {-1, -1};
  MPI_Reduce(&mine, &best, 1, MPI_DOUBLE_INT, MPI_MAXLOC, 0, comm);
  if (job::rank_of(comm) == 0 && (best.value != wanted || best.place != wanted))
    job::fail("MPI_MAXLOC at one rank: %g at %d", best.value, best.place);
}

void intercommunicator() {
  const int rank = job::rank_of(MPI_COMM_WORLD);
  const int size = job::size_of(MPI_COMM_WORLD);
  if (size < 2) return;
  MPI_Comm half;
  MPI_Comm inter = job::between_halves(&half);
  int remote = 0;
  MPI_Comm_remote_size(inter, &remote);
  for (int i = 0; i < 5; ++i) {
    const int one = 1;
    int sum = 0;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, inter);
    if (sum != remote) job::fail("intercommunicator: %d of %d", sum, remote);
    int data = rank == 0 ? 42 : 0;
    const int root = rank % 2 == 1 ? 0 : rank == 0 ? MPI_ROOT : MPI_PROC_NULL;
    MPI_Bcast(&data, 1, MPI_INT, root, inter);
    if (rank % 2 == 1 && data != 42) job::fail("bcast on an intercommunicator");
    sum = -1;
    MPI_Reduce(&one, &sum, 1, MPI_INT, MPI_SUM, root, inter);
    if (sum != (rank == 0 ? remote : -1)) job::fail("reduce on an intercommunicator: %d", sum);
    std::vector<int> all(static_cast<std::size_t>(remote), -1);
    MPI_Allgather(&rank, 1, MPI_INT, all.data(), 1, MPI_INT, inter);
    if (all.back() != 2 * (remote - 1) + (rank + 1) % 2)
      job::fail("allgather on an intercommunicator: %d", all.back());
  }
  MPI_Comm_free(&inter);
  MPI_Comm_free(&half);
}

int in_finalize(MPI_Comm, int, void*, void*) {
  job::sum_in_finalize(MPI_COMM_WORLD);
  return MPI_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int keyval;
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, in_finalize, &keyval, nullptr);
  MPI_Comm_set_attr(MPI_COMM_SELF, keyval, nullptr);
  MPI_Comm one;
  MPI_Comm_split(MPI_COMM_WORLD, job::rank_of(MPI_COMM_WORLD), 0, &one);
  for (MPI_Comm comm : {MPI_COMM_WORLD, MPI_COMM_SELF, one}) {
    for (int i = 0; i < 4; ++i) {
      user_operation(comm);
      pairs(comm);
      job::warm_up(comm);
    }
  }
  MPI_Comm_free(&one);
  intercommunicator();
  MPI_Finalize();
  return 0;
}
