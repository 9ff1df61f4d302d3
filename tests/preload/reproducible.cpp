// HEDDLE_REPRODUCIBLE: the same call has the same bits from the first one on, on any communicator of these
// ranks, and so does an element by itself. The host MPI would add in another order.
#include <algorithm>

#include "job.hpp"

namespace {

// Of which every order of adding has another sum.
std::vector<double> make_input(std::size_t count) {
  job::Random random(static_cast<std::uint64_t>(job::rank_of(MPI_COMM_WORLD)));
  std::vector<double> values(count);
  for (double& value : values)
    value = static_cast<double>(random.next()) / 3.0 * (random.below(2) != 0 ? 1e-8 : 1);
  return values;
}

void sum_alike(MPI_Comm comm, const char* name, const std::vector<double>& in,
               std::vector<double>* expected) {
  // More than the calls that the host gets otherwise.
  const int calls = in.size() > 1000 ? 12 : 1100;
  std::vector<double> out(in.size());
  for (int call = 1; call <= calls; ++call) {
    MPI_Allreduce(in.data(), out.data(), static_cast<int>(in.size()), MPI_DOUBLE, MPI_SUM, comm);
    if (expected->empty()) *expected = out;
    if (std::memcmp(expected->data(), out.data(), in.size() * sizeof(double)) != 0)
      job::fail("%s: other bits in call %d of %zu elements", name, call, in.size());
    const int root = call % job::size_of(comm);
    if (call > 20) continue;
    std::fill(out.begin(), out.end(), -1.0);
    MPI_Reduce(in.data(), out.data(), static_cast<int>(in.size()), MPI_DOUBLE, MPI_SUM, root, comm);
    if (job::rank_of(comm) == root &&
        std::memcmp(expected->data(), out.data(), in.size() * sizeof(double)) != 0)
      job::fail("%s: other bits in a reduce to %d of %zu elements", name, root, in.size());
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm early;
  MPI_Comm_dup(MPI_COMM_WORLD, &early);
  for (const std::size_t count : {1000u, 100'000u, 1u}) {
    const std::vector<double> in = make_input(count);
    std::vector<double> expected;
    sum_alike(early, "a communicator that is older than heddle", in, &expected);
    sum_alike(MPI_COMM_WORLD, "MPI_COMM_WORLD", in, &expected);
    MPI_Comm late;
    MPI_Comm_dup(MPI_COMM_WORLD, &late);
    sum_alike(late, "a new communicator", in, &expected);
    MPI_Comm_free(&late);
  }
  // A bcast may be the first call as well.
  MPI_Comm other;
  MPI_Comm_dup(MPI_COMM_WORLD, &other);
  int value = job::rank_of(other);
  MPI_Bcast(&value, 1, MPI_INT, 1, other);
  if (value != 1) job::fail("a bcast as the first call: %d", value);
  if (job::served_by(1, sizeof value, other) == "host") job::fail("left to the host");
  MPI_Comm_free(&other);
  MPI_Comm_free(&early);
  MPI_Finalize();
  return 0;
}
