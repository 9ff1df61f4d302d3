// Many communicators at once, all of them used: heddle must not take what the program then lacks, the host's
// communicators and file descriptors. Arguments: how many communicators; how many descriptors the program may
// have, 0 for as many as there are. Or "all", for as many communicators as the host has, and "late" where
// heddle is first used when they are gone.
#include <fcntl.h>
#include <sys/resource.h>

#include "job.hpp"

namespace {

// With errors handled as in any program that does not care.
std::vector<MPI_Comm> take_all() {
  std::vector<MPI_Comm> all;
  MPI_Comm comm;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  while (MPI_Comm_dup(MPI_COMM_WORLD, &comm) == MPI_SUCCESS)
    all.push_back(comm);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
  for (MPI_Comm& one : all)
    MPI_Comm_set_errhandler(one, MPI_ERRORS_ARE_FATAL);
  return all;
}

void use(MPI_Comm comm, int value) {
  job::make_worthwhile(comm);
  for (int call = 0; call < 4; ++call) {
    int sum = 0;
    MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, comm);
    if (sum != value * job::size_of(comm)) job::fail("communicator %d: %d", value, sum);
  }
}

// What heddle would make of its own there is none of any more.
int use_all_there_are(bool late) {
  if (!late) job::warm_up(MPI_COMM_WORLD);
  std::vector<MPI_Comm> all = take_all();
  for (std::size_t i = 0; i < 10 && i < all.size(); ++i) {
    use(all[i], static_cast<int>(i));
    MPI_Errhandler now;
    MPI_Comm_get_errhandler(all[i], &now);
    if (now != MPI_ERRORS_ARE_FATAL) job::fail("communicator %zu has another error handler", i);
  }
  use(MPI_COMM_WORLD, 1);
  for (MPI_Comm& comm : all)
    MPI_Comm_free(&comm);
  MPI_Finalize();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc > 1 && std::strcmp(argv[1], "all") == 0) return use_all_there_are(argc > 2);
  const int count = argc > 1 ? std::atoi(argv[1]) : 100;
  const int descriptors = argc > 2 ? std::atoi(argv[2]) : 0;
  if (descriptors > 0) {
    const rlimit limit = {static_cast<rlim_t>(descriptors), static_cast<rlim_t>(descriptors)};
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) job::fail("no such limit");
  }
  std::vector<MPI_Comm> all;
  int served = 0;
  for (int i = 0; i < count; ++i) {
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);  // ends the job where there is none left
    use(comm, i);
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
