// A thread with the smallest stack that the host MPI is content with: heddle is found, opened and set up
// there.
#include <pthread.h>

#include "job.hpp"

namespace {

void* call(void* /*unused*/) {
  static double in = 1;
  static double sum = 0;
  for (int i = 0; i < 6; ++i) {
    MPI_Allreduce(&in, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Bcast(&sum, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  }
  if (static_cast<int>(sum) != job::size_of(MPI_COMM_WORLD)) job::fail("sum is %g", sum);
  return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  if (provided < MPI_THREAD_SERIALIZED) job::fail("this MPI has no threads");
  const std::size_t bytes = 1024 * static_cast<std::size_t>(argc > 1 ? std::atoi(argv[1]) : 16);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, bytes);
  pthread_t thread;
  if (pthread_create(&thread, &attributes, call, nullptr) != 0) job::fail("no thread");
  pthread_join(thread, nullptr);
  if (job::served_by(0, 8, MPI_COMM_WORLD) == "host") job::fail("left to the host");
  MPI_Finalize();
  return 0;
}
