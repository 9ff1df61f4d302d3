// A private communicator of this process alone: a place to ask the host things without running the user's
// error handlers or attribute callbacks, and a handle on the host's progress.
#pragma once

#include <cstdint>

#include "interpose/backend/host_mpi.hpp"

namespace heddle::backend {

class HostSelf {
 public:
  explicit HostSelf(const HostMpi& mpi) : mpi_(&mpi) {}
  HostSelf(const HostSelf&) = delete;
  HostSelf& operator=(const HostSelf&) = delete;

  // Uses one context id. MPI is initialised; one thread. False when the host has none to spare.
  bool open();
  // While MPI still works. Nobody may be in progress().
  void close();

  // Of how many elements the host takes one buffer as both of a call's, which MPI forbids, and adds up there:
  // MPICH none, unless it checks nothing; Open MPI one in MPI_Allreduce, and none at the root of MPI_Reduce.
  // And whether what a rank gives to MPI_Allgather may be in its place already, without MPI_IN_PLACE.
  struct Aliased {
    std::int64_t allreduce = 0;
    std::int64_t reduce = 0;
    bool allgather = false;
  };
  Aliased most_aliased() const;

  // Errors on it are returned.
  MPI_Comm comm() const { return comm_; }

  // Moves whatever the host has under way. Any thread.
  //
  // Asks about a receive that never completes, which makes the host do all it can. (MPICH does nothing in a
  // probe of a communicator of one rank, and may do nothing in one of the user's communicator when it finds a
  // message there.)
  void progress() const {
    int done = 0;
    mpi_->Request_get_status(pending_, &done, MPI_STATUS_IGNORE);
  }

 private:
  const HostMpi* mpi_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  MPI_Request pending_ = MPI_REQUEST_NULL;
};

}  // namespace heddle::backend
