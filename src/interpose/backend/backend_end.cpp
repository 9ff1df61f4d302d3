// How a backend lets go: of communicators that are freed, and of everything in MPI_Finalize.
#include "comm/device_path.hpp"
#include "comm/nodes_path.hpp"
#include "interpose/backend/backend.hpp"
#include "interpose/backend/finalize_together.hpp"

namespace heddle::backend {

int Backend::on_comm_delete(MPI_Comm /*comm*/, int /*keyval*/, void* attribute, void* extra) {
  static_cast<Backend*>(extra)->registry_.recycle(static_cast<CommState*>(attribute));
  return MPI_SUCCESS;
}

// MPI_Finalize deletes the attributes of MPI_COMM_SELF first of all, while MPI still works. Communicators
// that the user never freed are let go of here; later calls, from other such callbacks, are the host's.
int Backend::on_finalize(MPI_Comm /*comm*/, int /*keyval*/, void* /*attribute*/, void* extra) {
  static_cast<Backend*>(extra)->shut_down();
  return MPI_SUCCESS;
}

void Backend::end() {
  if (ready_.load(std::memory_order_acquire)) stop_serving();
}

void Backend::stop_serving() {
  closed_.store(true, std::memory_order_release);
  // First of all, because the other ranks may end their communicators in another order.
  for (CommState* state : registry_.all()) {
    if (state->communicator == nullptr) continue;
    if (DevicePath* const path = state->communicator->device_path(); path != nullptr) path->let_go();
    if (NodesPath* const path = state->communicator->nodes_path(); path != nullptr) path->let_go();
  }
  for (CommState* state : registry_.all()) {
    state->mode = Mode::host;
    state->savings.reset();
    state->communicator.reset();
    state->p2p.reset();
  }
}

void Backend::shut_down() {
  stop_serving();
  self_.close();
  if (set_up_->all_ranks_message()) finalize_with_others();
}

void Backend::finalize_with_others() {
  char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  if (mpi_.Get_library_version(version, &length) != MPI_SUCCESS) return;
  const Status met = finalize_together(version, [&](bool mine) {
    const int here = mine ? 1 : 0;
    int all = 0;
    return mpi_.Allreduce(&here, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD) == MPI_SUCCESS && all != 0;
  });
  if (!met.ok()) set_up_->log().warn("MPI_Finalize may hang: " + met.message());
}

}  // namespace heddle::backend
