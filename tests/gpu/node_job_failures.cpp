// Of node_job.cpp: ranks that fail, cannot begin, or are late.
#include <chrono>
#include <thread>
#include <vector>

#include "node_job.hpp"

namespace node_job {
namespace {

void expect(const char* what, int rc, int wanted) {
  int error_class = MPI_SUCCESS;
  PMPI_Error_class(rc, &error_class);
  if (error_class != wanted) job::fail("%s: class %d instead of %d", what, error_class, wanted);
}

// On a communicator whose calls go by the hosts: the others are in the call, and this rank has no input for
// it.
void copy_that_fails(const Job& job, bool bad) {
  MPI_Comm comm = worthwhile();
  std::vector<float> host(1000, 1.0F);
  std::vector<float> sum(host.size());
  const auto add = [&](const void* in) {
    return MPI_Allreduce(in, sum.data(), static_cast<int>(sum.size()), MPI_FLOAT, MPI_SUM, comm);
  };
  for (int i = 0; i < 20; ++i) {
    if (add(host.data()) != MPI_SUCCESS) job::fail("a sum of the hosts: error");
  }
  if (bad) job.fail("cuMemcpyDtoHAsync", CUDA_ERROR_ILLEGAL_ADDRESS, 1);
  expect("a copy that fails", add(bad ? job.in.data() : host.data()), MPI_ERR_OTHER);
  expect("what follows", add(host.data()), MPI_ERR_OTHER);
  MPI_Comm_free(&comm);
}

}  // namespace

void failures(const Job& job) {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm comm = worthwhile();
  begin(job, comm, 40);
  const bool bad = job.rank == job.size - 1;
  const auto after = [&](const char* what) {
    if (sum_once(job, comm)) job::fail("after %s the mode goes on", what);
    begin(job, comm, 600);
  };
  TestMemory freed(job.driver, Memory::device, 100, job.device);
  void* const nowhere = bad ? freed.lose() : job.out.data();
  expect("freed", MPI_Allreduce(job.in.data(), nowhere, 1, MPI_INT, MPI_SUM, comm),
         bad ? MPI_ERR_BUFFER : MPI_ERR_OTHER);
  after("freed memory");
  const TestMemory small(job.driver, Memory::device, 100, job.device);
  expect("too long", MPI_Bcast(bad ? small.data() : job.in.data(), 200, MPI_BYTE, 0, comm),
         bad ? MPI_ERR_BUFFER : MPI_ERR_OTHER);
  after("a buffer that is too long");
  // Before the first meeting, in the middle, and behind the last piece.
  struct Fault {
    const char* function;
    int piece;
  };
  for (const Fault fault :
       {Fault{"cuMemcpyDtoDAsync", 0}, Fault{"cuLaunchKernel", 1}, Fault{"cuStreamSynchronize", 1}}) {
    if (bad) job.fail(fault.function, CUDA_ERROR_ILLEGAL_ADDRESS, 1);
    expect(fault.function, MPI_Allreduce(job.in.data(), job.out.data(), 150'000, MPI_FLOAT, MPI_SUM, comm),
           MPI_ERR_OTHER);
    after(fault.function);
  }
  MPI_Comm_free(&comm);
  copy_that_fails(job, bad);
}

void refused(const Job& job, const char* function, int error, int first) {
  MPI_Comm comm = worthwhile();
  if (job.rank == job.size - 1) job.fail(function, error, 1000);
  for (int i = 0; i < 40; ++i) {
    if (sum_once(job, comm) && i >= first) job::fail("a GPU has served a call");
  }
  if (job.rank == job.size - 1) job.fail(function, error, 0);
  MPI_Comm_free(&comm);
}

void late(const Job& job) {
  MPI_Comm comm = worthwhile();
  begin(job, comm, 40);
  if (job.rank == job.size - 1) std::this_thread::sleep_for(std::chrono::seconds(30));
  sum_once(job, comm);
}

}  // namespace node_job
