// A job that spawns a process, which runs without the preload library (launchers start it as they were told
// to start themselves), and merges with it: heddle must not wait for that process.
#include "job.hpp"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm parent;
  MPI_Comm_get_parent(&parent);
  const bool is_spawned = parent != MPI_COMM_NULL;
  MPI_Comm between = parent;
  if (!is_spawned)
    MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &between,
                   MPI_ERRCODES_IGNORE);
  else if (job::served_by(0, 4, MPI_COMM_WORLD) != "absent")
    job::fail("the spawned process has the library");
  MPI_Comm all;
  MPI_Intercomm_merge(between, is_spawned ? 1 : 0, &all);
  job::make_worthwhile(all);
  for (int call = 0; call < 10; ++call) {
    const int one = 1;
    int sum = 0;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, all);
    if (sum != job::size_of(all)) job::fail("call %d: %d of %d", call, sum, job::size_of(all));
  }
  // What has no such process is served as ever.
  MPI_Comm own;
  MPI_Comm_split(all, is_spawned ? 1 : 0, 0, &own);
  if (!is_spawned) job::warm_up(own);
  MPI_Comm_free(&own);
  MPI_Comm_free(&all);
  MPI_Comm_disconnect(&between);
  MPI_Finalize();
  return 0;
}
