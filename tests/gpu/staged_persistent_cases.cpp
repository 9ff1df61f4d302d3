#include "staged_cases.hpp"

namespace gpu_job {
namespace {

constexpr int kInts = 3000;

std::vector<unsigned char> data_of(int rank, int round) {
  std::vector<unsigned char> bytes(4 * kInts);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<unsigned char>(7 * i + 31 * static_cast<std::size_t>(rank) +
                                          5 * static_cast<std::size_t>(round));
  return bytes;
}

}  // namespace

// Around the ring, other data every time, and in some rounds less than there is room for. One that has not
// been started ends at once, and writes nothing.
void again_and_again(Job& job) {
  constexpr int kRounds = 12;
  const int rank = job::rank_of(MPI_COMM_WORLD);
  const int size = job::size_of(MPI_COMM_WORLD);
  const int next = (rank + 1) % size;
  const int before = (rank + size - 1) % size;
  const Buffer from(job.driver, job.kind(rank), 4 * kInts, rank % 2);
  const Buffer to(job.driver, job.kind(rank), 4 * kInts, (rank + 1) % 2);
  const TestMemory device(job.driver, Memory::device, 4 * kInts, 0);
  MPI_Request requests[4];
  MPI_Recv_init(to.at(), kInts, MPI_INT, before, 0, MPI_COMM_WORLD, &requests[0]);
  MPI_Send_init(from.at(), kInts, MPI_INT, next, 0, MPI_COMM_WORLD, &requests[1]);
  MPI_Send_init(from.at(), kInts / 2, MPI_INT, next, 0, MPI_COMM_WORLD, &requests[2]);
  MPI_Recv_init(device.data(), kInts, MPI_INT, before, 1, MPI_COMM_WORLD, &requests[3]);
  const std::vector<unsigned char> mark(4 * kInts, 9);
  device.put(mark.data(), mark.size());
  std::vector<unsigned char> expected = data_of(before, -1);
  to.set(expected);
  for (int round = 0; round < kRounds; ++round) {
    const bool is_short = round % 3 == 2;
    from.set(data_of(rank, round));
    const std::vector<unsigned char> theirs = data_of(before, round);
    std::copy_n(theirs.begin(), is_short ? 2 * kInts : 4 * kInts, expected.begin());
    MPI_Request started[2] = {requests[0], requests[is_short ? 2 : 1]};
    if (round % 2 == 0) {
      MPI_Startall(2, started);
    } else {
      MPI_Start(&started[0]);
      MPI_Start(&started[1]);
    }
    int came = 0;
    MPI_Status statuses[4];
    MPI_Waitall(4, requests, statuses);
    MPI_Get_count(&statuses[0], MPI_INT, &came);
    if (came != (is_short ? kInts / 2 : kInts)) job::fail("round %d: %d ints", round, came);
    if (to.value() != expected) job::fail("round %d of a persistent receive", round);
    // What has been received is the program's.
    std::fill(expected.begin(), expected.end(), static_cast<unsigned char>(round));
    to.set(expected);
    int done = 0;
    MPI_Request_get_status(requests[0], &done, MPI_STATUS_IGNORE);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    if (done == 0 || to.value() != expected) job::fail("round %d: an end of nothing", round);
  }
  std::vector<unsigned char> after(4 * kInts);
  device.get(after.data(), after.size());
  if (after != mark) job::fail("a receive that was never started");
  for (MPI_Request& request : requests) {
    MPI_Request_free(&request);
    if (request != MPI_REQUEST_NULL) job::fail("a persistent request that was freed");
  }
}

#if MPI_VERSION >= 4
// A sum likewise: of what is there when it is started, and the end of none writes nothing.
void sums_again(Job& job) {
  const int size = job::size_of(MPI_COMM_WORLD);
  const TestMemory in(job.driver, Memory::device, 4, 0);
  const TestMemory out(job.driver, Memory::device, 4, 0);
  MPI_Request request;
  MPI_Allreduce_init(in.data(), out.data(), 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
  for (int round = 1; round < 6; ++round) {
    in.put(&round, 4);
    MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    int sum = 0;
    out.get(&sum, 4);
    if (sum != size * round) job::fail("round %d of a persistent sum: %d", round, sum);
    const int own = -7;
    out.put(&own, 4);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    out.get(&sum, 4);
    if (sum != own) job::fail("round %d: the end of no sum wrote %d", round, sum);
  }
  MPI_Request_free(&request);
}
#else
void sums_again(Job&) {}
#endif

// It goes on, and what comes is stored with what is staged later.
void freed_while_started(Job& job) {
  constexpr int kMany = 300'000;  // longer than hosts take at once
  const std::vector<int> data(kMany, job::rank_of(MPI_COMM_WORLD) + 5);
  const TestMemory from(job.driver, Memory::device, 4 * kMany, 0);
  const TestMemory to(job.driver, Memory::device, 4 * kMany, 0);
  from.put(data.data(), 4 * kMany);
  MPI_Request request;
  MPI_Recv_init(to.data(), kMany, MPI_INT, 0, 0, MPI_COMM_SELF, &request);
  MPI_Start(&request);
  MPI_Request_free(&request);
  MPI_Send_init(from.data(), kMany, MPI_INT, 0, 0, MPI_COMM_SELF, &request);
  MPI_Start(&request);
  MPI_Request_free(&request);
  if (request != MPI_REQUEST_NULL) job::fail("a started request that was freed");
  std::vector<int> there(kMany);
  for (int i = 0; i < 1000 && there != data; ++i) {
    const TestMemory one(job.driver, Memory::device, 4, 0);
    MPI_Irecv(one.data(), 1, MPI_INT, 0, 1, MPI_COMM_SELF, &request);
    PMPI_Send(data.data(), 1, MPI_INT, 0, 1, MPI_COMM_SELF);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    to.get(there.data(), 4 * kMany);
  }
  if (there != data) job::fail("a message between persistent requests that were freed");
}

// One that was freed and fails later is forgotten: its handle may be another request's by then.
void freed_and_too_short(Job& job) {
  const int rank = job::rank_of(MPI_COMM_WORLD);
  const TestMemory memory(job.driver, Memory::device, 16, 0);
  const int sent[2] = {5, 6};
  const auto by_staging = [&] {
    MPI_Request request;
    int there = 0;
    MPI_Isend(memory.data(), 1, MPI_INT, rank, 22, MPI_COMM_WORLD, &request);
    PMPI_Recv(&there, 1, MPI_INT, rank, 22, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  };
  for (int round = 0; round < 4; ++round) {
    MPI_Request request;
    MPI_Irecv(memory.data(), 1, MPI_INT, rank, 20, MPI_COMM_WORLD, &request);
    MPI_Request_free(&request);
    PMPI_Send(sent, 2, MPI_INT, rank, 20, MPI_COMM_WORLD);
    by_staging();
    int there[2] = {0, 0};
    MPI_Irecv(there, 2, MPI_INT, rank, 21, MPI_COMM_WORLD, &request);
    PMPI_Send(sent, 2, MPI_INT, rank, 21, MPI_COMM_WORLD);
    by_staging();
    expect("a request after one that failed", MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS);
    if (there[1] != 6) job::fail("what came after a request that failed: %d", there[1]);
  }
}

// A start that cannot read its data starts nothing, and may be tried again.
void starts_that_fail(Job& job) {
  const int rank = job::rank_of(MPI_COMM_WORLD);
  const TestMemory from(job.driver, Memory::device, 4 * kInts, 0);
  const TestMemory to(job.driver, Memory::device, 4 * kInts, 0);
  const std::vector<unsigned char> data = data_of(rank, 0);
  from.put(data.data(), data.size());
  MPI_Request requests[2];
  MPI_Recv_init(to.data(), kInts, MPI_INT, rank, 0, MPI_COMM_WORLD, &requests[0]);
  MPI_Send_init(from.data(), kInts, MPI_INT, rank, 0, MPI_COMM_WORLD, &requests[1]);
  job.driver.fail("cuMemcpyDtoHAsync", CUDA_ERROR_ILLEGAL_ADDRESS);
  expect("a start that fails", MPI_Startall(2, requests), MPI_ERR_OTHER);
  expect("no more than nothing", MPI_Waitall(2, requests, MPI_STATUSES_IGNORE), MPI_SUCCESS);
  expect("another start", MPI_Startall(2, requests), MPI_SUCCESS);
  expect("and its end", MPI_Waitall(2, requests, MPI_STATUSES_IGNORE), MPI_SUCCESS);
  std::vector<unsigned char> after(data.size());
  to.get(after.data(), after.size());
  if (after != data) job::fail("after a start that failed");
  for (MPI_Request& request : requests)
    MPI_Request_free(&request);
  TestMemory lost(job.driver, Memory::device, 100, 0);
  expect("freed memory of a persistent request",
         MPI_Send_init(lost.lose(), 1, MPI_INT, rank, 0, MPI_COMM_WORLD, &requests[0]), MPI_ERR_BUFFER);
}

}  // namespace gpu_job
