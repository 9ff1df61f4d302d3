// Communicators are taken over when their calls would have saved what the set-up costs: after few long calls
// or many short ones, and MPI_COMM_WORLD soon in any case.
#include "job.hpp"

namespace {

bool is_served(MPI_Comm comm) {
  return job::served_by(0, 8, comm) != "host";
}

void sum(MPI_Comm comm, std::size_t count) {
  std::vector<int> data(count, 1);
  MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(count), MPI_INT, MPI_SUM, comm);
  if (data.front() != job::size_of(comm) || data.back() != data.front()) job::fail("sum of %zu", count);
}

// Sums of `count` integers until heddle serves them; how many it took, `most` at most.
int sums_until_served(MPI_Comm comm, std::size_t count, int most) {
  int calls = 0;
  for (; calls < most && !is_served(comm); ++calls)
    sum(comm, count);
  return calls;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm comm;
  for (int i = 0; i < 20; ++i) {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int call = 0; call < 50; ++call)
      sum(comm, 2);
    if (is_served(comm)) job::fail("set up for fifty short calls");
    MPI_Comm_free(&comm);
  }
  // Of timings, say.
  for (int call = 0; call < 50; ++call) {
    const double mine = call;
    double least = -1;
    MPI_Reduce(&mine, &least, 1, MPI_DOUBLE, MPI_MIN, 0, MPI_COMM_WORLD);
  }
  // Of the names of hosts.
  for (int call = 0; call < 50; ++call) {
    std::vector<int> all(static_cast<std::size_t>(job::size_of(MPI_COMM_WORLD)));
    MPI_Allgather(&call, 1, MPI_INT, all.data(), 1, MPI_INT, MPI_COMM_WORLD);
  }
  if (is_served(MPI_COMM_WORLD)) job::fail("set up for fifty reduces and allgathers");
  const int world = sums_until_served(MPI_COMM_WORLD, 2, 1000);
  if (world > 3) job::fail("MPI_COMM_WORLD was taken over after %d calls", world);

  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  const int shorts = sums_until_served(comm, 2, 10'000);
  if (shorts < 100 || shorts > 1000) job::fail("taken over after %d short calls", shorts);
  MPI_Comm_free(&comm);

  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  int reduces = 0;
  for (; reduces < 10'000 && !is_served(comm); ++reduces) {
    int sum = 0;
    MPI_Reduce(&reduces, &sum, 1, MPI_INT, MPI_SUM, reduces % job::size_of(comm), comm);
  }
  if (reduces < 100 || reduces > 1000) job::fail("taken over after %d reduces", reduces);
  MPI_Comm_free(&comm);

  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  const std::vector<char> mine(std::size_t{1} << 20);
  std::vector<char> all(mine.size() * static_cast<std::size_t>(job::size_of(comm)));
  int gathers = 0;
  for (; gathers < 100 && !is_served(comm); ++gathers)
    MPI_Allgather(mine.data(), 1 << 20, MPI_CHAR, all.data(), 1 << 20, MPI_CHAR, comm);
  if (gathers > 2) job::fail("taken over after %d long allgathers", gathers);
  MPI_Comm_free(&comm);

  MPI_Comm_split(MPI_COMM_WORLD, 0, -job::rank_of(MPI_COMM_WORLD), &comm);
  const int longs = sums_until_served(comm, 300'000, 100);
  if (longs != 3) job::fail("taken over after %d long calls", longs);
  MPI_Comm_free(&comm);
  MPI_Finalize();
  return 0;
}
