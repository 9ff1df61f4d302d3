// Communicators come and go: created, used three times (so that heddle is set up) and freed. Neither
// descriptors nor memory may grow, and a handle that comes back must not meet what its former owner left.
// Argument: how many.
#include <dirent.h>
#include <unistd.h>

#include "job.hpp"

namespace {

int open_descriptors() {
  DIR* folder = opendir("/proc/self/fd");
  int count = 0;
  while (readdir(folder) != nullptr)
    ++count;
  closedir(folder);
  return count;
}

long resident_kib() {
  long pages = 0;
  long resident = 0;
  if (FILE* file = std::fopen("/proc/self/statm", "r"); file != nullptr) {
    if (std::fscanf(file, "%ld %ld", &pages, &resident) != 2) resident = 0;
    std::fclose(file);
  }
  return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

// Handles come back, each time for a communicator with other members or in another order.
void use_one(int i) {
  const int rank = job::rank_of(MPI_COMM_WORLD);
  const int size = job::size_of(MPI_COMM_WORLD);
  const bool reversed = i % 4 == 1;
  MPI_Comm comm;
  if (i % 2 == 0) {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  } else {
    MPI_Comm_split(MPI_COMM_WORLD, 0, reversed ? -rank : rank, &comm);
  }
  job::make_worthwhile(comm);
  for (int call = 0; call < 3; ++call) {
    int first = rank * 1000 + i % 1000;
    MPI_Bcast(&first, 1, MPI_INT, 0, comm);
    if (first != (reversed ? size - 1 : 0) * 1000 + i % 1000)
      job::fail("communicator %d, call %d: bcast", i, call);
    int value = rank + i;
    int sum = 0;
    MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, comm);
    if (sum != size * i + size * (size - 1) / 2) job::fail("communicator %d, call %d: %d", i, call, sum);
  }
  if (size > 1 && job::served_by(0, 4, comm) == "host") job::fail("communicator %d was not taken over", i);
  MPI_Comm_free(&comm);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int count = argc > 1 ? std::atoi(argv[1]) : 10'000;
  for (int i = 0; i < count / 10; ++i)
    use_one(i);
  const int descriptors = open_descriptors();
  const long resident = resident_kib();
  for (int i = 0; i < count; ++i)
    use_one(i);
  const long grown = resident_kib() - resident;
  if (open_descriptors() > descriptors)
    job::fail("descriptors grew from %d to %d", descriptors, open_descriptors());
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr long kMostKib = 1 << 20;  // a sanitizer keeps what is freed
#else
  constexpr long kMostKib = 1536;  // half a kilobyte for each of 3,000; leaks of even a page would be 12 MiB
#endif
  if (grown > kMostKib) job::fail("resident memory grew by %ld KiB over %d communicators", grown, count);
  // Some are left to MPI_Finalize.
  MPI_Comm kept;
  MPI_Comm_dup(MPI_COMM_WORLD, &kept);
  job::warm_up(kept);
  if (job::rank_of(MPI_COMM_WORLD) == 0) std::printf("grown by %ld KiB\n", grown);
  MPI_Finalize();
  return 0;
}
