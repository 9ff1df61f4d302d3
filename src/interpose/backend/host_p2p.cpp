#include "interpose/backend/host_p2p.hpp"

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstring>
#include <vector>

#include "interpose/backend/errors_returned.hpp"

namespace heddle::backend {
namespace {

// What is in the storage of a message.
struct Message {
  MPI_Request request;
  MPI_Count expected;  // bytes to be received; -1: it is sent
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

// So many bytes: as they are, or as one of a datatype's where an int does not count them
// (heddle_mpi_long_type in heddle/heddle_mpi.h).
class Bytes {
 public:
  Bytes(const HostMpi& mpi, std::size_t bytes) : mpi_(mpi) {
    if (bytes <= INT_MAX) {
      count_ = static_cast<int>(bytes);
      return;
    }
    std::vector<int> lengths;
    std::vector<MPI_Aint> places;
    for (std::size_t at = 0; at < bytes; at += kPiece) {
      lengths.push_back(static_cast<int>(std::min(kPiece, bytes - at)));
      places.push_back(static_cast<MPI_Aint>(at));
    }
    error_ = mpi_.Type_create_hindexed(static_cast<int>(lengths.size()), lengths.data(), places.data(),
                                       MPI_BYTE, &made_);
    if (error_ == MPI_SUCCESS) error_ = mpi_.Type_commit(&made_);
  }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  // It goes when the message is done with it.
  ~Bytes() {
    if (made_ != MPI_DATATYPE_NULL) mpi_.Type_free(&made_);
  }

  int error() const { return error_; }
  int count() const { return count_; }
  MPI_Datatype type() const { return made_ != MPI_DATATYPE_NULL ? made_ : MPI_BYTE; }

 private:
  static constexpr std::size_t kPiece = std::size_t{1} << 30;

  const HostMpi& mpi_;
  int error_ = MPI_SUCCESS;
  int count_ = 1;
  MPI_Datatype made_ = MPI_DATATYPE_NULL;
};

}  // namespace

Result<std::unique_ptr<HostP2p>> HostP2p::create(const HostMpi& mpi, MPI_Comm comm, std::atomic<int>& open) {
  // Not MPI_Comm_dup, which would run the attribute callbacks of the user.
  MPI_Group group;
  MPI_Comm made = MPI_COMM_NULL;
  if (mpi.Comm_group(comm, &group) != MPI_SUCCESS) return Status(Code::system, "MPI_Comm_group failed");
  int rc = MPI_SUCCESS;
  {
    const ErrorsReturned returned(mpi, comm);
    rc = mpi.Comm_create(comm, group, &made);
  }
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
  const auto* self = static_cast<HostP2p*>(context);
  const Bytes all(*self->mpi_, bytes);
  Message made{MPI_REQUEST_NULL, -1};
  int rc = all.error();
  if (rc == MPI_SUCCESS)
    rc = self->mpi_->Isend(data, all.count(), all.type(), peer, tag, self->comm_, &made.request);
  if (rc == MPI_SUCCESS) store(request, made);
  return rc;
}

int HostP2p::recv(void* data, size_t bytes, int peer, int tag, void* request, void* context) {
  const auto* self = static_cast<HostP2p*>(context);
  const Bytes all(*self->mpi_, bytes);
  Message made{MPI_REQUEST_NULL, static_cast<MPI_Count>(bytes)};
  int rc = all.error();
  if (rc == MPI_SUCCESS)
    rc = self->mpi_->Irecv(data, all.count(), all.type(), peer, tag, self->comm_, &made.request);
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
  MPI_Count came = 0;
  rc = self->mpi_->Get_elements_x(&status, MPI_BYTE, &came);
  return rc == MPI_SUCCESS && came != open.expected ? MPI_ERR_TRUNCATE : rc;
}

int HostP2p::cancel(void* request, void* context) {
  const auto* self = static_cast<HostP2p*>(context);
  Message open = load(request);
  if (open.request == MPI_REQUEST_NULL) return MPI_SUCCESS;
  self->mpi_->Cancel(&open.request);
  // Few sends can be cancelled, and no receive whose message is on its way: those that end by themselves
  // leave the buffer alone after this. Not one whose receiver never takes it: it may read what is there later
  // on.
  constexpr std::chrono::milliseconds kEndsWithin{20};
  const auto end = std::chrono::steady_clock::now() + kEndsWithin;
  int rc = MPI_SUCCESS;
  for (int done = 0; rc == MPI_SUCCESS && done == 0 && std::chrono::steady_clock::now() < end;)
    rc = self->mpi_->Test(&open.request, &done, MPI_STATUS_IGNORE);
  if (open.request != MPI_REQUEST_NULL) {
    const int freed = self->mpi_->Request_free(&open.request);
    // It goes on without us, in the buffer as well: heddle says so.
    if (rc == MPI_SUCCESS) rc = freed == MPI_SUCCESS ? MPI_ERR_OTHER : freed;
  }
  store(request, open);
  return rc;
}

void HostP2p::progress(void* context) {
  const auto* self = static_cast<HostP2p*>(context);
  int flag = 0;
  self->mpi_->Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, self->comm_, &flag, MPI_STATUS_IGNORE);
}

}  // namespace heddle::backend
