// The host MPI's point-to-point messages as a heddle_p2p, on a private communicator.
#pragma once

#include <atomic>
#include <memory>

#include "base/status.hpp"
#include "heddle/heddle.h"
#include "interpose/backend/host_mpi.hpp"

namespace heddle::backend {

class HostP2p {
 public:
  // The host's communicators are the program's in the first place: MPICH has 2,048 or so.
  static constexpr int kMost = 128;
  // Collective over `comm`. Uses one context id. `open`, which outlives it, counts those there are.
  static Result<std::unique_ptr<HostP2p>> create(const HostMpi& mpi, MPI_Comm comm, std::atomic<int>& open);
  HostP2p(const HostP2p&) = delete;
  HostP2p& operator=(const HostP2p&) = delete;
  // Frees the private communicator; MPI must not be finalized yet.
  ~HostP2p();

  // Valid for as long as this object.
  heddle_p2p functions();

 private:
  HostP2p(const HostMpi& mpi, MPI_Comm comm, std::atomic<int>& open) : mpi_(&mpi), comm_(comm), open_(open) {}

  static int send(const void* data, size_t bytes, int peer, int tag, void* request, void* context);
  static int recv(void* data, size_t bytes, int peer, int tag, void* request, void* context);
  static int test(void* request, int* done, void* context);
  static int cancel(void* request, void* context);
  static void progress(void* context);

  const HostMpi* mpi_;
  MPI_Comm comm_;
  std::atomic<int>& open_;
};

}  // namespace heddle::backend
