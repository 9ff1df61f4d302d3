#include "interpose/backend/host_self.hpp"

#include "interpose/backend/errors_returned.hpp"

namespace heddle::backend {

bool HostSelf::open() {
  // Split, not dup: dup would run the attribute callbacks that the user has on MPI_COMM_SELF.
  {
    const ErrorsReturned returned(*mpi_, MPI_COMM_SELF);
    if (mpi_->Comm_split(MPI_COMM_SELF, 0, 0, &comm_) != MPI_SUCCESS) comm_ = MPI_COMM_NULL;
  }
  if (comm_ == MPI_COMM_NULL) return false;
  mpi_->Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  if (mpi_->Irecv(nullptr, 0, MPI_BYTE, 0, 0, comm_, &pending_) == MPI_SUCCESS) return true;
  close();
  return false;
}

void HostSelf::close() {
  if (pending_ != MPI_REQUEST_NULL) {
    mpi_->Cancel(&pending_);
    mpi_->Wait(&pending_, MPI_STATUS_IGNORE);
  }
  if (comm_ != MPI_COMM_NULL) mpi_->Comm_free(&comm_);
}

}  // namespace heddle::backend
