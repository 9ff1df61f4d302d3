// What becomes of calls that fail.
#include <string>

#include "interpose/backend/backend.hpp"

namespace heddle::backend {

// Nobody knows how far this rank has come.
int Backend::out_of_memory(const char* call, MPI_Comm comm) {
  const Status status(Code::out_of_memory, "no memory for this rank's part");
  CommState* const state = registry_.find(comm);
  if (state == nullptr || state->communicator == nullptr) return refuse(status, call, comm);
  return fail(status, comm, *state);
}

int Backend::refuse(const Status& status, const char* call, MPI_Comm comm) {
  const int error_class = status.code() == Code::out_of_memory      ? MPI_ERR_NO_MEM
                          : status.code() == Code::invalid_argument ? MPI_ERR_BUFFER
                                                                    : MPI_ERR_OTHER;
  return refuse(status, call, comm, error_class);
}

int Backend::refuse(const Status& status, const char* call, MPI_Comm comm, int error_class) {
  // Where memory ran out while this was made ready there is no log yet.
  if (is_ready()) set_up_->last_words(std::string(call) + ": " + status.message());
  mpi_.Comm_call_errhandler(comm, error_class);
  return error_class;
}

// A mistake is likely to be all ranks', who may go on with the next call. Want of memory or a copy that fails
// is this rank's alone: the others are in the call and would wait for it.
int Backend::refuse_image(const Status& status, const char* call, MPI_Comm comm) {
  const bool is_mistake = status.code() == Code::invalid_argument || status.code() == Code::unsupported;
  CommState* const state = is_mistake ? nullptr : registry_.find(comm);
  const bool served = state != nullptr && (state->mode == Mode::heddle || state->mode == Mode::partly);
  return served ? fail(status, comm, *state) : refuse(status, call, comm);
}

// Other ranks may be inside the collective already, so there is no way back to the host: say why and let the
// user's error handler decide, which aborts the job unless the user chose otherwise.
int Backend::fail(const Status& status, MPI_Comm comm, CommState& state) {
  if (!status.ok()) {
    set_up_->last_words(state.name + ": " + status.message());
    state.communicator->give_up(status);
  }
  state.mode = Mode::failed;
  const int error_class = status.code() == Code::out_of_memory ? MPI_ERR_NO_MEM : MPI_ERR_OTHER;
  mpi_.Comm_call_errhandler(comm, error_class);
  return error_class;
}

}  // namespace heddle::backend
