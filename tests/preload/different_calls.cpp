// The ranks call a collective with different sizes, or different ones: whoever needs another's data is told
// so, nobody takes what is not theirs, and other communicators remain right. "messages": between nodes, where
// lengths alone are compared, and what came of another call may be in the buffer of a call that fails.
#include "job.hpp"

namespace {

// An allreduce of no bytes stands for a barrier.
struct Calls {
  bool is_bcast;
  std::size_t bytes;  // of rank 0
  bool others_bcast;
  std::size_t others_bytes;
};
constexpr Calls kCalls[] = {
    {false, 8, false, 16},
    {false, 16, false, 8},
    {true, 8, true, 16},
    {true, 16, true, 8},
    {false, 100, false, 4'096},
    {true, 4'096, true, 100},
    {false, 8'192, false, 40'000},
    {false, 40'000, false, 8'192},
    {true, 40'000, true, 8'192},
    {true, 9'000, true, 30'000},
    {false, 100'000, false, 1'000'000},
    {true, 1'000'000, true, 100'000},
    {true, 100'000, true, 1'000'000},
    {true, 64, false, 64},
    {false, 0, false, 8},
    {false, 40'000, false, 0},
    {true, 64, false, 0},
    {true, 500'000, false, 500'000},
};

int call(bool is_bcast, std::size_t bytes, std::vector<char>* out, MPI_Comm comm) {
  const std::vector<char> in(bytes, 1);
  out->assign(bytes, 7);
  if (bytes == 0) return MPI_Barrier(comm);
  if (is_bcast) return MPI_Bcast(out->data(), static_cast<int>(bytes), MPI_CHAR, 0, comm);
  return MPI_Allreduce(in.data(), out->data(), static_cast<int>(bytes), MPI_SIGNED_CHAR, MPI_BOR, comm);
}

void check(const Calls& calls, std::size_t number, bool by_messages) {
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  job::warm_up(comm);
  const bool is_first = job::rank_of(comm) == 0;
  std::vector<char> out;
  const int rc = is_first ? call(calls.is_bcast, calls.bytes, &out, comm)
                          : call(calls.others_bcast, calls.others_bytes, &out, comm);
  // The root of a bcast needs nobody.
  const bool may_end = is_first && calls.is_bcast;
  if (rc == MPI_SUCCESS && !may_end) job::fail("calls %zu are taken for the same", number);
  for (const char c : out) {
    if (c != 7 && !by_messages) job::fail("calls %zu: there is a result", number);
  }
  PMPI_Barrier(MPI_COMM_WORLD);  // a rank may have waited until its deadline
  int all = 0;
  const int one = 1;
  MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (all != job::size_of(MPI_COMM_WORLD)) job::fail("MPI_COMM_WORLD after calls %zu", number);
  MPI_Comm_free(&comm);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  job::warm_up(MPI_COMM_WORLD);
  // To which MPICH brings what goes wrong with any message.
  if (argc > 1) MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  for (std::size_t i = 0; i < sizeof kCalls / sizeof kCalls[0]; ++i) {
    if (argc == 1 || kCalls[i].is_bcast == kCalls[i].others_bcast) check(kCalls[i], i, argc > 1);
  }
  MPI_Finalize();
  return 0;
}
