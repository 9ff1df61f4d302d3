#include "staged_cases.hpp"

#include <cstddef>
#include <deque>

namespace gpu_job {

// Many messages at once, to and from memory of every kind, which end in another order than they were begun.
void several(Job& job) {
  constexpr int kMessages = 12;
  constexpr int kInts = 500;
  const int rank = job::rank_of(MPI_COMM_WORLD);
  const int size = job::size_of(MPI_COMM_WORLD);
  const int next = (rank + 1) % size;
  const int before = (rank + size - 1) % size;
  const auto bytes_of = [](int from, int message) {
    std::vector<unsigned char> bytes(4 * kInts);
    for (std::size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<unsigned char>(7 * i + 31 * static_cast<std::size_t>(from) +
                                            static_cast<std::size_t>(message));
    return bytes;
  };
  for (int round = 0; round < 6; ++round) {
    std::deque<Buffer> from;
    std::deque<Buffer> to;
    std::vector<MPI_Request> requests(2 * kMessages);
    for (int i = 0; i < kMessages; ++i) {
      from.emplace_back(job.driver, job.kind(rank), 4 * kInts, rank % 2);
      to.emplace_back(job.driver, job.kind(rank), 4 * kInts, (rank + 1) % 2);
      from.back().set(bytes_of(rank, i));
      MPI_Irecv(to.back().at(), kInts, MPI_INT, before, i, MPI_COMM_WORLD,
                &requests[static_cast<std::size_t>(i)]);
    }
    for (int i = kMessages - 1; i >= 0; --i)
      MPI_Isend(from[static_cast<std::size_t>(i)].at(), kInts, MPI_INT, next, i, MPI_COMM_WORLD,
                &requests[kMessages + static_cast<std::size_t>(i)]);
    const int all = 2 * kMessages;
    std::vector<MPI_Status> statuses(requests.size());
    std::vector<int> places(requests.size());
    for (int left = all; left > 0;) {
      int ended = 1;
      if (round % 3 == 0) {
        MPI_Waitall(all, requests.data(), statuses.data());
        ended = all;
      } else if (round % 3 == 1) {
        MPI_Waitany(all, requests.data(), places.data(), MPI_STATUS_IGNORE);
      } else {
        MPI_Waitsome(all, requests.data(), &ended, places.data(), MPI_STATUSES_IGNORE);
      }
      left -= ended;
    }
    for (int i = 0; i < kMessages; ++i) {
      if (to[static_cast<std::size_t>(i)].value() != bytes_of(before, i))
        job::fail("message %d of several", i);
    }
  }
}

// Columns of one matrix come and go at once: nothing is written but their elements.
void columns(Job& job) {
  constexpr int kRows = 50;
  constexpr int kColumns = 5;
  const int rank = job::rank_of(MPI_COMM_WORLD);
  const int size = job::size_of(MPI_COMM_WORLD);
  const auto at = [](int row, int column) {
    return static_cast<std::size_t>(row) * kColumns + static_cast<std::size_t>(column);
  };
  MPI_Datatype column;
  MPI_Type_vector(kRows, 1, kColumns, MPI_INT, &column);
  MPI_Type_commit(&column);
  const int once = 1;
  const MPI_Aint place = 16;
  MPI_Datatype last;
  MPI_Type_create_hindexed(1, &once, &place, column, &last);
  MPI_Type_commit(&last);
  for (const Memory kind : {Memory::device, Memory::managed, Memory::mapped}) {
    const Buffer matrix(job.driver, kind, 4 * kRows * kColumns, 0);
    std::vector<int> data(kRows * kColumns);
    for (std::size_t i = 0; i < data.size(); ++i)
      data[i] = static_cast<int>(1000 * static_cast<std::size_t>(rank) + i);
    const auto bytes_of = [](const std::vector<int>& ints) {
      const auto* const first = reinterpret_cast<const unsigned char*>(ints.data());
      return std::vector<unsigned char>(first, first + 4 * ints.size());
    };
    matrix.set(bytes_of(data));
    // Columns 1 and 2 come from the rank before, from its 0 and 3.
    MPI_Request requests[4];
    MPI_Irecv(matrix.at(4), 1, column, (rank + size - 1) % size, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(matrix.at(8), 1, column, (rank + size - 1) % size, 2, MPI_COMM_WORLD, &requests[1]);
    MPI_Datatype freed;  // while requests use it
    MPI_Type_dup(column, &freed);
    MPI_Isend(matrix.at(0), 1, freed, (rank + 1) % size, 1, MPI_COMM_WORLD, &requests[2]);
    MPI_Isend(matrix.at(12), 1, freed, (rank + 1) % size, 2, MPI_COMM_WORLD, &requests[3]);
    MPI_Type_free(&freed);
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < kRows; ++i) {
      const int theirs = 1000 * ((rank + size - 1) % size) + i * kColumns;
      data[at(i, 1)] = theirs;
      data[at(i, 2)] = theirs + 3;
    }
    if (matrix.value() != bytes_of(data)) job::fail("columns in %s memory", memory_name(kind));
    // From column 0 to column 4, by one address.
    MPI_Sendrecv(matrix.at(), 1, column, rank, 3, matrix.at(), 1, last, rank, 3, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    for (int i = 0; i < kRows; ++i)
      data[at(i, 4)] = data[at(i, 0)];
    if (matrix.value() != bytes_of(data)) job::fail("from column to column in %s memory", memory_name(kind));
  }
  MPI_Type_free(&last);
  MPI_Type_free(&column);
}

// Elements that do not lie in their order, of which some come; absolute addresses.
void odd_types(Job& job) {
  const int rank = job::rank_of(MPI_COMM_WORLD);
  MPI_Datatype row;
  MPI_Datatype transposed;
  MPI_Type_vector(4, 1, 4, MPI_INT, &row);
  MPI_Type_create_resized(row, 0, 4, &transposed);
  MPI_Type_commit(&transposed);
  const std::vector<int> sent = {0, 1, 2, 3, 4, 5, 6, 7};
  const std::vector<int> expected = {0, 4, -1, -1, 1, 5, -1, -1, 2, 6, -1, -1, 3, 7, -1, -1};
  const std::vector<int> before(16, -1);
  const TestMemory memory(job.driver, Memory::device, 64, 0);
  std::vector<int> after(16);
  memory.put(before.data(), 64);
  MPI_Request request;
  PMPI_Isend(sent.data(), 8, MPI_INT, rank, 0, MPI_COMM_WORLD, &request);
  expect("a short message",
         MPI_Recv(memory.data(), 4, transposed, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE), 0);
  PMPI_Wait(&request, MPI_STATUS_IGNORE);
  memory.get(after.data(), 64);
  if (after != expected) job::fail("a short message into a transposed matrix");
  // Absolute addresses: two ints in memory.
  MPI_Aint places[2];
  const int lengths[2] = {1, 1};
  MPI_Get_address(memory.as<char>() + 40, &places[0]);
  MPI_Get_address(memory.as<char>() + 8, &places[1]);
  MPI_Datatype absolute;
  MPI_Type_create_hindexed(2, lengths, places, MPI_INT, &absolute);
  MPI_Type_commit(&absolute);
  memory.put(before.data(), 64);
  PMPI_Isend(sent.data() + 5, 2, MPI_INT, rank, 0, MPI_COMM_WORLD, &request);
  expect("absolute addresses", MPI_Recv(MPI_BOTTOM, 1, absolute, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
         0);
  PMPI_Wait(&request, MPI_STATUS_IGNORE);
  memory.get(after.data(), 64);
  std::vector<int> both(16, -1);
  both[10] = 5;
  both[2] = 6;
  if (after != both) job::fail("a receive at absolute addresses");
  // Several pieces that the host can use where they lie.
  const TestMemory managed(job.driver, Memory::managed, 64, 0);
  const TestMemory pinned(job.driver, Memory::pinned, 64, 0);
  int here = -1;
  for (void* const there : {managed.data(), pinned.data()}) {
    MPI_Get_address(&here, &places[0]);
    MPI_Get_address(there, &places[1]);
    MPI_Type_free(&absolute);
    MPI_Type_create_hindexed(2, lengths, places, MPI_INT, &absolute);
    MPI_Type_commit(&absolute);
    PMPI_Isend(sent.data() + 3, 2, MPI_INT, rank, 0, MPI_COMM_WORLD, &request);
    expect("several pieces", MPI_Recv(MPI_BOTTOM, 1, absolute, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
           0);
    PMPI_Wait(&request, MPI_STATUS_IGNORE);
    if (here != 3 || *static_cast<int*>(there) != 4) job::fail("a receive into several pieces");
    if (there != managed.data()) continue;
    // What a GPU has yet to write there is sent.
    const int later = 9;
    int got[2] = {};
    job.driver.find<void (*)(void*, const void*, std::size_t)>("fake_cuda_write_later")(there, &later,
                                                                                        sizeof later);
    PMPI_Irecv(got, 2, MPI_INT, rank, 0, MPI_COMM_WORLD, &request);
    expect("a send of several pieces", MPI_Send(MPI_BOTTOM, 1, absolute, rank, 0, MPI_COMM_WORLD), 0);
    PMPI_Wait(&request, MPI_STATUS_IGNORE);
    if (got[0] != 3 || got[1] != later) job::fail("a send of several pieces: %d, %d", got[0], got[1]);
  }
  for (MPI_Datatype* type : {&absolute, &transposed, &row})
    MPI_Type_free(type);
}

// A receive that is too short fails, and its image goes: a later request may have its handle.
void too_short(Job& job) {
  const int rank = job::rank_of(MPI_COMM_WORLD);
  constexpr int kRequests = 4;
  const TestMemory short_of(job.driver, Memory::device, 16, 0);
  const std::vector<int> before = {1, 2, 3, 4};
  std::vector<int> data(8, 5);
  std::vector<int> there(8);
  for (int i = 0; i < kRequests; ++i) {
    MPI_Request request;
    MPI_Request sent;
    MPI_Irecv(short_of.data(), 4, MPI_INT, rank, 0, MPI_COMM_WORLD, &request);
    PMPI_Isend(data.data(), 8, MPI_INT, rank, 0, MPI_COMM_WORLD, &sent);
    expect("a message that is too long", MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_ERR_TRUNCATE);
    PMPI_Wait(&sent, MPI_STATUS_IGNORE);
    short_of.put(before.data(), 16);
    // Into the host's memory: none of the other's images is stored with it.
    MPI_Irecv(there.data(), 8, MPI_INT, rank, 1, MPI_COMM_WORLD, &request);
    PMPI_Isend(data.data(), 8, MPI_INT, rank, 1, MPI_COMM_WORLD, &sent);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    PMPI_Wait(&sent, MPI_STATUS_IGNORE);
    std::vector<int> after(4);
    short_of.get(after.data(), 16);
    if (after != before || there != data) job::fail("after a message that was too long");
  }
}

// Hosts have one handle for all that is complete at once.
void at_once(Job& job) {
  const TestMemory in(job.driver, Memory::device, 4, 0);
  const int seven = 7;
  in.put(&seven, 4);
  const auto value = [](const TestMemory& memory) {
    int there = 0;
    memory.get(&there, 4);
    return there;
  };
  const TestMemory a(job.driver, Memory::device, 4, 0);
  const TestMemory b(job.driver, Memory::device, 4, 0);
  MPI_Request first;
  MPI_Request second;
  MPI_Request third;
  MPI_Iallreduce(in.data(), a.data(), 1, MPI_INT, MPI_SUM, MPI_COMM_SELF, &first);
  MPI_Iallreduce(in.data(), b.data(), 1, MPI_INT, MPI_SUM, MPI_COMM_SELF, &second);
  MPI_Wait(&second, MPI_STATUS_IGNORE);
  if (value(b) != 7) job::fail("the second of two sums on one rank");
  MPI_Wait(&first, MPI_STATUS_IGNORE);
  if (value(a) != 7) job::fail("the first of two sums on one rank");
  const TestMemory c(job.driver, Memory::device, 4, 0);
  MPI_Isend(in.data(), 1, MPI_INT, 0, 0, MPI_COMM_SELF, &first);
  MPI_Iallreduce(in.data(), c.data(), 1, MPI_INT, MPI_SUM, MPI_COMM_SELF, &second);
  MPI_Isend(in.data(), 1, MPI_INT, 0, 1, MPI_COMM_SELF, &third);
  MPI_Request_free(&third);
  MPI_Wait(&second, MPI_STATUS_IGNORE);
  if (value(c) != 7) job::fail("a sum on one rank between messages");
  const TestMemory d(job.driver, Memory::device, 8, 0);
  MPI_Recv(d.data(), 1, MPI_INT, 0, 1, MPI_COMM_SELF, MPI_STATUS_IGNORE);
  if (value(d) != 7) job::fail("a message whose request was freed");
  MPI_Recv(d.as<char>() + 4, 1, MPI_INT, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE);
  MPI_Wait(&first, MPI_STATUS_IGNORE);
}

// They go on, and come with what is staged later.
void freed_requests(Job& job) {
  constexpr int kInts = 300'000;  // longer than hosts take at once
  const std::vector<int> data(kInts, job::rank_of(MPI_COMM_WORLD) + 5);
  const TestMemory from(job.driver, Memory::device, 4 * kInts, 0);
  const TestMemory to(job.driver, Memory::device, 4 * kInts, 0);
  from.put(data.data(), 4 * kInts);
  MPI_Request request;
  MPI_Irecv(to.data(), kInts, MPI_INT, 0, 0, MPI_COMM_SELF, &request);
  MPI_Request_free(&request);
  if (request != MPI_REQUEST_NULL) job::fail("a request that was freed");
  MPI_Isend(from.data(), kInts, MPI_INT, 0, 0, MPI_COMM_SELF, &request);
  MPI_Request_free(&request);
  std::vector<int> there(kInts);
  for (int i = 0; i < 1000 && there != data; ++i) {
    const TestMemory one(job.driver, Memory::device, 4, 0);
    MPI_Irecv(one.data(), 1, MPI_INT, 0, 1, MPI_COMM_SELF, &request);
    PMPI_Send(data.data(), 1, MPI_INT, 0, 1, MPI_COMM_SELF);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    to.get(there.data(), 4 * kInts);
  }
  if (there != data) job::fail("a message between requests that were freed");
}

// Of elements in several pieces all are copied at once, however many there are.
void structures(Job& job) {
  struct Particle {
    int number;
    double place[3];
    int kind;
  };
  constexpr int kParticles = 1000;
  const int lengths[] = {1, 3, 1};
  const MPI_Aint places[] = {offsetof(Particle, number), offsetof(Particle, place), offsetof(Particle, kind)};
  const MPI_Datatype types[] = {MPI_INT, MPI_DOUBLE, MPI_INT};
  MPI_Datatype packed;
  MPI_Datatype particle;
  MPI_Type_create_struct(3, lengths, places, types, &packed);
  MPI_Type_create_resized(packed, 0, sizeof(Particle), &particle);
  MPI_Type_commit(&particle);
  std::vector<Particle> sent(kParticles);
  for (int i = 0; i < kParticles; ++i)
    sent[static_cast<std::size_t>(i)] = {i, {i + 0.5, i + 0.25, -1.0 * i}, 2 * i};
  const TestMemory memory(job.driver, Memory::device, kParticles * sizeof(Particle), 0);
  const int copies = job.driver.calls("cuMemcpy2DAsync") + job.driver.calls("cuMemcpyHtoDAsync");
  MPI_Request request;
  const int rank = job::rank_of(MPI_COMM_WORLD);
  PMPI_Isend(sent.data(), kParticles, particle, rank, 0, MPI_COMM_WORLD, &request);
  MPI_Recv(memory.data(), kParticles, particle, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  PMPI_Wait(&request, MPI_STATUS_IGNORE);
  const int made = job.driver.calls("cuMemcpy2DAsync") + job.driver.calls("cuMemcpyHtoDAsync") - copies;
  std::vector<Particle> there(kParticles);
  memory.get(there.data(), kParticles * sizeof(Particle));
  for (std::size_t i = 0; i < there.size(); ++i) {
    if (there[i].number != sent[i].number || there[i].place[2] != sent[i].place[2] ||
        there[i].kind != sent[i].kind)
      job::fail("particle %zu", i);
  }
  if (made > 4) job::fail("%d copies of %d particles", made, kParticles);
  MPI_Type_free(&packed);
  MPI_Type_free(&particle);
}

void in_finalize(Job& job) {
  static const TestMemory* memory = nullptr;
  static MPI_Datatype every_other = MPI_DATATYPE_NULL;
  memory = new TestMemory(job.driver, Memory::device, 64, 0);  // for the rest of the process
  std::vector<int> numbers(16);
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = static_cast<int>(i);
  memory->put(numbers.data(), 64);
  MPI_Type_vector(4, 1, 2, MPI_INT, &every_other);
  MPI_Type_commit(&every_other);
  const auto callback = [](MPI_Comm, int, void*, void*) -> int {
    MPI_Sendrecv(memory->data(), 1, every_other, 0, 0, memory->as<char>() + 32, 1, every_other, 0, 0,
                 MPI_COMM_SELF, MPI_STATUS_IGNORE);
    std::vector<int> there(16);
    memory->get(there.data(), 64);
    if (there != std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 0, 9, 2, 11, 4, 13, 6, 15})
      job::fail("messages in MPI_Finalize");
    std::puts("reached the callback in MPI_Finalize");
    std::fflush(stdout);
    return MPI_SUCCESS;
  };
  int keyval = MPI_KEYVAL_INVALID;
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, callback, &keyval, nullptr);
  MPI_Comm_set_attr(MPI_COMM_SELF, keyval, nullptr);
}

}  // namespace gpu_job
