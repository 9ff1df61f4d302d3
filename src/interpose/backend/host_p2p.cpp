#include "interpose/backend/host_p2p.hpp"

#include <climits>
#include <cstring>

namespace heddle::backend {
namespace {

// What is in the storage of a message.
struct Message {
  MPI_Request request;
  int expected;  // bytes to be received; -1: it is sent
};
static_assert(sizeof(Message) <= HEDDLE_P2P_REQUEST_BYTES);

Message load(const void* storage) {
  Message message;
  std::memcpy(&message, storage, sizeof message);
  return message;
}

void store(void* storage, const Message& message) {
  std::memcpy(storage, &message, sizeof message);
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
  Message made{MPI_REQUEST_NULL, -1};
  const int rc =
      self->mpi_->Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, self->comm_, &made.request);
  if (rc == MPI_SUCCESS) store(request, made);
  return rc;
}

int HostP2p::recv(void* data, size_t bytes, int peer, int tag, void* request, void* context) {
  if (bytes > INT_MAX) return MPI_ERR_COUNT;
  const auto* self = static_cast<HostP2p*>(context);
  Message made{MPI_REQUEST_NULL, static_cast<int>(bytes)};
  const int rc = self->mpi_->Irecv(data, made.expected, MPI_BYTE, peer, tag, self->comm_, &made.request);
  if (rc == MPI_SUCCESS) store(request, made);
  return rc;
}

int HostP2p::test(void* request, int* done, void* context) {
  const auto* self = static_cast<HostP2p*>(context);
  Message open = load(request);
  MPI_Status status;
  int rc = self->mpi_->Test(&open.request, done, &status);
  store(request, open);
  if (rc != MPI_SUCCESS) {
    int which = MPI_ERR_OTHER;
    self->mpi_->Error_class(rc, &which);
    return which;
  }
  if (*done == 0 || open.expected < 0) return MPI_SUCCESS;
  int came = 0;
  rc = self->mpi_->Get_count(&status, MPI_BYTE, &came);
  return rc == MPI_SUCCESS && came != open.expected ? MPI_ERR_TRUNCATE : rc;
}

int HostP2p::cancel(void* request, void* context) {
  const auto* self = static_cast<HostP2p*>(context);
  Message open = load(request);
  if (open.request == MPI_REQUEST_NULL) return MPI_SUCCESS;
  self->mpi_->Cancel(&open.request);
  const int rc = self->mpi_->Request_free(&open.request);
  store(request, open);
  return rc;
}

void HostP2p::progress(void* context) {
  const auto* self = static_cast<HostP2p*>(context);
  int flag = 0;
  self->mpi_->Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, self->comm_, &flag, MPI_STATUS_IGNORE);
}

}  // namespace heddle::backend
