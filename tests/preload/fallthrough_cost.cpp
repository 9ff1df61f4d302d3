// What a call costs that heddle leaves to the host, beyond what the host takes itself: MPI_ and PMPI_ names
// are called in turn, and the median of the differences is printed. Run it with and without the preload
// library, on one rank or more. Not a test: timings are no assertions.
#include <algorithm>

#include "job.hpp"

namespace {

constexpr int kBatch = 10'000;
constexpr int kBatches = 301;

template <typename Call>
double batch_ns(const Call& call) {
  const double start = MPI_Wtime();
  for (int i = 0; i < kBatch; ++i)
    call();
  return (MPI_Wtime() - start) / kBatch * 1e9;
}

template <typename Hooked, typename Host>
void measure(const char* what, const Hooked& hooked, const Host& host) {
  std::vector<double> more;
  std::vector<double> direct;
  for (int i = 0; i < kBatches; ++i) {
    const double before = batch_ns(host);
    const double with = batch_ns(hooked);
    const double after = batch_ns(host);
    more.push_back(with - (before + after) / 2);
    direct.push_back(std::min(before, after));
  }
  std::nth_element(more.begin(), more.begin() + kBatches / 2, more.end());
  std::nth_element(direct.begin(), direct.begin() + kBatches / 2, direct.end());
  if (job::rank_of(MPI_COMM_WORLD) == 0) {
    std::printf("%-44s host %7.1f ns, more by %5.1f ns a call\n", what, direct[kBatches / 2],
                more[kBatches / 2]);
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int data = 1;
  int out = 0;
  const auto measure_on = [&](const char* what, int count, MPI_Comm comm) {
    measure(
        what, [&] { MPI_Allreduce(&data, &out, count, MPI_INT, MPI_SUM, comm); },
        [&] { PMPI_Allreduce(&data, &out, count, MPI_INT, MPI_SUM, comm); });
  };
  for (int i = 0; i < 4; ++i)
    MPI_Allreduce(&data, &out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  measure_on("a communicator of one rank", 1, MPI_COMM_SELF);
  measure_on("no elements, MPI_COMM_WORLD", 0, MPI_COMM_WORLD);
  measure(
      "no bytes, MPI_COMM_WORLD, MPI_Bcast", [&] { MPI_Bcast(&data, 0, MPI_INT, 0, MPI_COMM_WORLD); },
      [&] { PMPI_Bcast(&data, 0, MPI_INT, 0, MPI_COMM_WORLD); });
  measure(
      "a message to oneself, MPI_Sendrecv",
      [&] {
        MPI_Sendrecv(&data, 1, MPI_INT, 0, 0, &out, 1, MPI_INT, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE);
      },
      [&] {
        PMPI_Sendrecv(&data, 1, MPI_INT, 0, 0, &out, 1, MPI_INT, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE);
      });
  measure(
      "a sum of one rank, MPI_Scan", [&] { MPI_Scan(&data, &out, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF); },
      [&] { PMPI_Scan(&data, &out, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF); });
  MPI_Finalize();
  return 0;
}
