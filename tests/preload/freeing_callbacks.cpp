// Collectives in a delete callback of a communicator's attribute, which was set before heddle met its first
// collective there on some ranks, after that on others; and then communicators that get the same handles.
#include "job.hpp"

namespace {

int called = 0;

void check_sum(MPI_Comm comm, const char* where) {
  const int one = 1;
  int sum = -1;
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
  if (sum != job::size_of(comm)) job::fail("%s: %d of %d", where, sum, job::size_of(comm));
  int value = job::rank_of(comm) == job::size_of(comm) - 1 ? 7 : 0;
  MPI_Bcast(&value, 1, MPI_INT, job::size_of(comm) - 1, comm);
  if (value != 7) job::fail("%s: bcast of %d", where, value);
}

int on_delete(MPI_Comm comm, int /*keyval*/, void* /*attribute*/, void* /*extra*/) {
  ++called;
  for (int i = 0; i < 4; ++i)
    check_sum(comm, "callback");
  return MPI_SUCCESS;
}

void use(MPI_Comm comm, int keyval, bool early, const char* where) {
  if (early) MPI_Comm_set_attr(comm, keyval, nullptr);
  job::make_worthwhile(comm);
  for (int i = 0; i < 6; ++i)
    check_sum(comm, where);
  if (!early) MPI_Comm_set_attr(comm, keyval, nullptr);
}

bool refuses = false;

int on_refused_delete(MPI_Comm /*comm*/, int /*keyval*/, void* /*attribute*/, void* /*extra*/) {
  return refuses ? MPI_ERR_OTHER : MPI_SUCCESS;
}

// A callback that refuses, whose attribute comes before heddle's on some ranks and after it on others: to all
// of them the communicator stays, or to none.
void check_refusal() {
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  for (MPI_Comm each : {comm, MPI_COMM_WORLD, MPI_COMM_SELF})
    MPI_Comm_set_errhandler(each, MPI_ERRORS_RETURN);
  int keyval;
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_refused_delete, &keyval, nullptr);
  use(comm, keyval, job::rank_of(comm) == 0, "before a refusal");
  refuses = true;
  MPI_Comm kept = comm;
  if (MPI_Comm_free(&kept) == MPI_SUCCESS || kept != comm)
    job::fail("was freed against the program's callback");
  for (int i = 0; i < 6; ++i)
    check_sum(comm, "after a refusal");
  refuses = false;
  MPI_Comm_free(&comm);
  MPI_Comm_free_keyval(&keyval);
}

void end(MPI_Comm* comm, int round) {
  if (round % 2 == 0)
    MPI_Comm_free(comm);
  else
    MPI_Comm_disconnect(comm);
  if (*comm != MPI_COMM_NULL) job::fail("the handle is still there");
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int rank = job::rank_of(MPI_COMM_WORLD);
  int keyval;
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_delete, &keyval, nullptr);
  constexpr int kRounds = 8;
  for (int round = 0; round < kRounds; ++round) {
    MPI_Comm comm;
    MPI_Comm_split(MPI_COMM_WORLD, rank / 2, rank, &comm);
    use(comm, keyval, (rank + round / 2) % 2 == 0, "split");
    end(&comm, round);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    use(comm, keyval, round % 4 < 2, "dup");
    end(&comm, round);
  }
  if (called != 2 * kRounds) job::fail("%d callbacks", called);
  check_refusal();

  // What the host refuses to free stays served.
  job::warm_up(MPI_COMM_WORLD);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm world = MPI_COMM_WORLD;
  if (MPI_Comm_free(&world) == MPI_SUCCESS) job::fail("MPI_COMM_WORLD was freed");
  if (job::served_by(0, 4, MPI_COMM_WORLD) == "host") job::fail("left to the host after an error");
  check_sum(MPI_COMM_WORLD, "world");
  MPI_Finalize();
  return 0;
}
