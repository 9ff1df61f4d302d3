// MPI_THREAD_MULTIPLE: three threads, each with communicators of its own, call collectives at the same time.
#include <thread>

#include "job.hpp"

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  if (provided != MPI_THREAD_MULTIPLE) {
    std::puts("the host has no MPI_THREAD_MULTIPLE");
    MPI_Finalize();
    return 77;
  }
  constexpr int kThreads = 3;
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 300;
  MPI_Comm comms[kThreads];
  for (MPI_Comm& comm : comms) {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    job::make_worthwhile(comm);
  }
  const int rank = job::rank_of(MPI_COMM_WORLD);
  const int size = job::size_of(MPI_COMM_WORLD);
  const auto work = [&](int thread) {
    std::vector<double> data(static_cast<std::size_t>(1 + thread * 5000));
    for (int i = 0; i < rounds; ++i) {
      std::fill(data.begin(), data.end(), rank + i + thread);
      MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(data.size()), MPI_DOUBLE, MPI_SUM,
                    comms[thread]);
      const double wanted = size * (i + thread) + size * (size - 1) / 2.0;
      if (data.front() != wanted || data.back() != wanted) job::fail("thread %d, round %d", thread, i);
      int root_says = rank == i % size ? i * 10 + thread : -1;
      MPI_Bcast(&root_says, 1, MPI_INT, i % size, comms[thread]);
      if (root_says != i * 10 + thread) job::fail("thread %d, round %d: bcast", thread, i);
      MPI_Barrier(comms[thread]);
      if (i % 50 == 49) {
        // Set-up and teardown while the others are at work.
        MPI_Comm_free(&comms[thread]);
        MPI_Comm_create_group(
            MPI_COMM_WORLD,
            [] {
              MPI_Group group;
              MPI_Comm_group(MPI_COMM_WORLD, &group);
              return group;
            }(),
            thread, &comms[thread]);
        job::make_worthwhile(comms[thread]);
      }
    }
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back(work, t);
  for (std::thread& thread : threads)
    thread.join();
  for (MPI_Comm& comm : comms)
    MPI_Comm_free(&comm);
  MPI_Finalize();
  return 0;
}
