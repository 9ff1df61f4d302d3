// What the parts of a job have in common whose ranks, on one node, pass GPU memory (node_job.cpp).
#pragma once

#include <cstddef>
#include <vector>

#include "../preload/job.hpp"
#include "cuda_memory.hpp"

namespace node_job {

using heddle::test::Memory;
using heddle::test::TestDriver;
using heddle::test::TestMemory;
using Bytes = std::vector<unsigned char>;

inline constexpr std::size_t kMost = std::size_t{1} << 21;
inline constexpr int kSoon = 16;  // sums until the GPUs do them at the latest

struct Job {
  Job(const char* library, int devices)
      : driver(library),
        counts(driver.is_double()),
        rank(job::rank_of(MPI_COMM_WORLD)),
        size(job::size_of(MPI_COMM_WORLD)),
        device(rank % devices),
        in(driver, Memory::device, kMost, device),
        out(driver, Memory::device, kMost, device) {}

  const TestDriver driver;
  const bool counts;  // CUDA's own driver does not
  const int rank;
  const int size;
  const int device;
  const TestMemory in;
  const TestMemory out;

  int calls(const char* name) const { return driver.calls(name); }
  void fail(const char* name, int error, int times) const {
    driver.find<void (*)(const char*, int, int)>("fake_cuda_fail")(name, error, times);
  }
  int kernels() const { return calls("cuLaunchKernel"); }
  // Or kernels that do the same.
  int copies() const { return calls("cuMemcpyDtoDAsync") + calls("heddle_exchange"); }
};

// A small sum of GPU memory, that must be right; whether the GPUs did it.
inline bool sum_once(const Job& job, MPI_Comm comm) {
  const int mine = job.rank + 1;
  job.in.put(&mine, sizeof mine);
  const int before = job.kernels();
  if (MPI_Allreduce(job.in.data(), job.out.data(), 1, MPI_INT, MPI_SUM, comm) != MPI_SUCCESS)
    job::fail("a small sum: error");
  int sum = 0;
  job.out.get(&sum, sizeof sum);
  if (sum != job.size * (job.size + 1) / 2) job::fail("a small sum: %d", sum);
  return job.kernels() > before;
}

// Another communicator of all, which heddle will soon take over.
inline MPI_Comm worthwhile() {
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  job::make_worthwhile(comm);
  return comm;
}

// Sums until the GPUs do them; how many it took. Where calls are not counted it makes as many as it should
// take, and HEDDLE_LOG=info says whether they do.
inline int begin(const Job& job, MPI_Comm comm, int most) {
  if (!job.counts) most = kSoon;
  for (int i = 1; i <= most; ++i) {
    if (sum_once(job, comm)) return i;
  }
  if (!job.counts) return most;
  job::fail("%d sums of GPU memory, and no GPU has served one", most);
}

// node_job_failures.cpp
//
// One rank's failure is all ranks': nobody waits, and the communicator goes on, staged, and then by the GPUs
// again.
void failures(const Job& job);
// One rank cannot set it up: all stay with images. In the first of the sums kernels may have been tried.
void refused(const Job& job, const char* function, int error, int first = 0);
// A rank stays away for longer than the deadline.
void late(const Job& job);

}  // namespace node_job
