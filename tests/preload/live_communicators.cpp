// Many communicators at once, all of them used: heddle must not take what the program then lacks, the host's communicators and file
// descriptors. Arguments: how many communicators; how many descriptors the program may have, 0 for as many as there are.
#include <fcntl.h>
#include <sys/resource.h>

#include "job.hpp"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int count = argc > 1 ? std::atoi(argv[1]) : 100;
  const int descriptors = argc > 2 ? std::atoi(argv[2]) : 0;
  if (descriptors > 0) {
    const rlimit limit = {static_cast<rlim_t>(descriptors), static_cast<rlim_t>(descriptors)};
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) job::fail("no such limit");
  }
  const int size = job::size_of(MPI_COMM_WORLD);
  std::vector<MPI_Comm> all;
  int served = 0;
  for (int i = 0; i < count; ++i) {
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);  // ends the job where there is none left
    job::make_worthwhile(comm);
    for (int call = 0; call < 4; ++call) {
      int value = i;
      int sum = 0;
      MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, comm);
      if (sum != i * size) job::fail("communicator %d: %d", i, sum);
    }
    served += job::served_by(0, 4, comm) != "host" ? 1 : 0;
    all.push_back(comm);
  }
  if (served == 0) job::fail("all left to the host");
  for (int i = 0; i < descriptors / 8; ++i) {
    if (open("/dev/null", O_RDONLY) < 0)
      job::fail("file %d of %d cannot be opened: no descriptors", i, descriptors / 8);
  }
  for (MPI_Comm& comm : all)
    MPI_Comm_free(&comm);
  MPI_Finalize();
  return 0;
}
