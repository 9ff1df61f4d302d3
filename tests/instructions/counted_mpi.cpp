// Calls whose instructions are counted, on rank 0: counted_mpi allreduce|bcast|bcast_from_peer BYTES CALLS.
// Rank 0 sleeps before each, so that the other rank is already inside and nothing is waited for.
#include <mpi.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>
#include <vector>

namespace {

struct Call {
  std::string_view name;
  std::vector<float> in;
  std::vector<float> out;
};

}  // namespace

// What the counting is switched on for; by this name.
extern "C" __attribute__((noinline)) void heddle_counted(void* call) {
  auto& c = *static_cast<Call*>(call);
  const int count = static_cast<int>(c.in.size());
  if (c.name == "allreduce") {
    MPI_Allreduce(c.in.data(), c.out.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  } else {
    MPI_Bcast(c.out.data(), count, MPI_FLOAT, c.name == "bcast" ? 0 : 1, MPI_COMM_WORLD);
  }
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 4) MPI_Abort(MPI_COMM_WORLD, 1);
  const std::size_t count = std::strtoul(argv[2], nullptr, 10) / sizeof(float);
  Call call{argv[1], std::vector<float>(count, 1), std::vector<float>(count)};
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  // Taken over, chosen, and all slots touched: not counted.
  for (int i = 0; i < 50; ++i) {
    if (call.name == "allreduce") {
      MPI_Allreduce(call.in.data(), call.out.data(), static_cast<int>(count), MPI_FLOAT, MPI_SUM,
                    MPI_COMM_WORLD);
    } else {
      MPI_Bcast(call.out.data(), static_cast<int>(count), MPI_FLOAT, i % 2, MPI_COMM_WORLD);
    }
  }
  const long calls = std::strtol(argv[3], nullptr, 10);
  for (long i = 0; i < calls; ++i) {
    if (rank == 0) usleep(2000);
    heddle_counted(&call);
  }
  MPI_Finalize();
  return 0;
}
