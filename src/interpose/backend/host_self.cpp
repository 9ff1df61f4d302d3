#include "interpose/backend/host_self.hpp"

#include <limits>

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

HostSelf::Aliased HostSelf::most_aliased() const {
  // Open MPI 4 reports this on MPI_COMM_WORLD, Open MPI 5 on MPI_COMM_SELF.
  const ErrorsReturned of_world(*mpi_, MPI_COMM_WORLD);
  const ErrorsReturned of_self(*mpi_, MPI_COMM_SELF);
  int values[2] = {};
  const auto most = [](const auto& call) {
    for (int count = 1; count <= 2; ++count) {
      if (call(count) != MPI_SUCCESS) return std::int64_t{count - 1};
    }
    return std::numeric_limits<std::int64_t>::max();
  };
  return {most([&](int n) { return mpi_->Allreduce(values, values, n, MPI_INT, MPI_SUM, comm_); }),
          most([&](int n) { return mpi_->Reduce(values, values, n, MPI_INT, MPI_SUM, 0, comm_); }),
          mpi_->Allgather(values, 1, MPI_INT, values, 1, MPI_INT, comm_) == MPI_SUCCESS};
}

void HostSelf::close() {
  if (pending_ != MPI_REQUEST_NULL) {
    mpi_->Cancel(&pending_);
    mpi_->Wait(&pending_, MPI_STATUS_IGNORE);
  }
  if (comm_ != MPI_COMM_NULL) mpi_->Comm_free(&comm_);
}

}  // namespace heddle::backend
