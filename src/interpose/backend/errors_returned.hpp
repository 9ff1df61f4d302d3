// While one exists errors on a communicator of the user's are returned, not handled as the user said: for
// what heddle asks of the host that may fail where the program would not have. Other threads' errors there
// are returned as well meanwhile, and what they set there stays.
#pragma once

#include "interpose/backend/host_mpi.hpp"

namespace heddle::backend {

class ErrorsReturned {
 public:
  ErrorsReturned(const HostMpi& mpi, MPI_Comm comm) : mpi_(mpi), comm_(comm) {
    known_ = mpi_.Comm_get_errhandler(comm_, &before_) == MPI_SUCCESS;
    if (known_) mpi_.Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  }
  ErrorsReturned(const ErrorsReturned&) = delete;
  ErrorsReturned& operator=(const ErrorsReturned&) = delete;
  ~ErrorsReturned() {
    if (!known_) return;
    MPI_Errhandler now = MPI_ERRHANDLER_NULL;
    if (mpi_.Comm_get_errhandler(comm_, &now) == MPI_SUCCESS) {
      if (now == MPI_ERRORS_RETURN) mpi_.Comm_set_errhandler(comm_, before_);
      mpi_.Errhandler_free(&now);
    }
    mpi_.Errhandler_free(&before_);
  }

 private:
  const HostMpi& mpi_;
  const MPI_Comm comm_;
  MPI_Errhandler before_ = MPI_ERRHANDLER_NULL;
  bool known_ = false;
};

}  // namespace heddle::backend
