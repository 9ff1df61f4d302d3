#include "job.hpp"

extern "C" __attribute__((visibility("default"))) int run_plugin() {
  MPI_Init(nullptr, nullptr);
  job::warm_up(MPI_COMM_WORLD);
  MPI_Finalize();
  return 0;
}
