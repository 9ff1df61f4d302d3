// What lends a simulated rank's messages to heddle. All ranks live in one process and one thread, and
// SimGrid's clock is theirs.
#pragma once

#include <mpi.h>
#include <simgrid/barrier.h>

#include <cstddef>
#include <vector>

#include "setup/bootstrap.hpp"

namespace heddle::scale {

// Ranks that share a process meet without a message.
class Meeting {
 public:
  explicit Meeting(int ranks) : barrier_(sg_barrier_init(static_cast<unsigned>(ranks))) {}
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;
  ~Meeting() { sg_barrier_destroy(barrier_); }
  void wait() { sg_barrier_wait(barrier_); }

  // What each rank has to say, for all to read between two waits.
  std::vector<std::byte> said;

 private:
  sg_bar_t barrier_;
};

// Of all ranks of MPI_COMM_WORLD, made by whoever comes first; never freed.
Meeting& world_meeting();

// MPI_Test would cost simulated time for every question asked. So heddle's progress waits (MPI_Waitany) until
// one of the open messages is through, as the host's own collectives wait, and its tests only look at what
// was found then.
class SimulatedHost {
 public:
  explicit SimulatedHost(MPI_Comm comm) : comm_(comm) {}
  SimulatedHost(const SimulatedHost&) = delete;
  SimulatedHost& operator=(const SimulatedHost&) = delete;

  // Borrows this object.
  Bootstrap bootstrap();

 private:
  // Of what opens a message: the place of its MPI_Request.
  static int send(const void* data, std::size_t bytes, int peer, int tag, void* request, void* context);
  static int recv(void* data, std::size_t bytes, int peer, int tag, void* request, void* context);
  static int test(void* request, int* done, void* context);
  static int cancel(void* request, void* context);

  std::size_t add(MPI_Request opened);
  void wait_for_any();
  Status gather(const void* mine, void* all, std::size_t bytes);

  MPI_Comm comm_;
  std::vector<MPI_Request> open_;  // MPI_REQUEST_NULL: done, or free
  std::vector<std::size_t> free_;  // places in open_
};

}  // namespace heddle::scale
