#include "interpose/backend/host_p2p.hpp"

#include <climits>
#include <cstring>

namespace heddle::backend {
namespace {

static_assert(sizeof(MPI_Request) <= HEDDLE_P2P_REQUEST_BYTES);

MPI_Request load_request(const void* storage) {
  MPI_Request request;
  std::memcpy(&request, storage, sizeof(MPI_Request));
  return request;
}

void store_request(void* storage, MPI_Request request) {
  std::memcpy(storage, &request, sizeof(MPI_Request));
}

}  // namespace

Result<std::unique_ptr<HostP2p>> HostP2p::create(const HostMpi& mpi, MPI_Comm comm, std::atomic<int>& open) {
  // Not MPI_Comm_dup, which would run the attribute callbacks of the user.
  MPI_Group group;
  MPI_Comm made = MPI_COMM_NULL;
  if (mpi.Comm_group(comm, &group) != MPI_SUCCESS) return Status(Code::system, "MPI_Comm_group failed");
  const int rc = mpi.Comm_create(comm, group, &made);
  mpi.Group_free(&group);
  if (rc != MPI_SUCCESS || made == MPI_COMM_NULL) {
    return Status(Code::out_of_memory,
                  "MPI_Comm_create failed: no private communicator for heddle's messages");
  }
  mpi.Comm_set_errhandler(made, MPI_ERRORS_RETURN);
  ++open;
  return std::unique_ptr<HostP2p>(new HostP2p(mpi, made, open));
}

HostP2p::~HostP2p() {
  mpi_->Comm_free(&comm_);
  --open_;
}

heddle_p2p HostP2p::functions() {
  return {send, recv, test, cancel, progress, nullptr, this};  // released by its owner
}

int HostP2p::send(const void* data, size_t bytes, int peer, int tag, void* request, void* context) {
  if (bytes > INT_MAX) return MPI_ERR_COUNT;
  const auto* self = static_cast<HostP2p*>(context);
  MPI_Request made;
  const int rc = self->mpi_->Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, self->comm_, &made);
  if (rc == MPI_SUCCESS) store_request(request, made);
  return rc;
}

int HostP2p::recv(void* data, size_t bytes, int peer, int tag, void* request, void* context) {
  if (bytes > INT_MAX) return MPI_ERR_COUNT;
  const auto* self = static_cast<HostP2p*>(context);
  MPI_Request made;
  const int rc = self->mpi_->Irecv(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, self->comm_, &made);
  if (rc == MPI_SUCCESS) store_request(request, made);
  return rc;
}

int HostP2p::test(void* request, int* done, void* context) {
  const auto* self = static_cast<HostP2p*>(context);
  MPI_Request open = load_request(request);
  const int rc = self->mpi_->Test(&open, done, MPI_STATUS_IGNORE);
  store_request(request, open);
  return rc;
}

int HostP2p::cancel(void* request, void* context) {
  const auto* self = static_cast<HostP2p*>(context);
  MPI_Request open = load_request(request);
  if (open == MPI_REQUEST_NULL) return MPI_SUCCESS;
  self->mpi_->Cancel(&open);
  const int rc = self->mpi_->Request_free(&open);
  store_request(request, open);
  return rc;
}

void HostP2p::progress(void* context) {
  const auto* self = static_cast<HostP2p*>(context);
  int flag = 0;
  self->mpi_->Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, self->comm_, &flag, MPI_STATUS_IGNORE);
}

}  // namespace heddle::backend
