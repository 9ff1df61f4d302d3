// How a backend lets go: of communicators that are freed, and of everything in MPI_Finalize.
#include "device/device_path.hpp"
#include "device/nodes_path.hpp"
#include "interpose/backend/backend.hpp"
#include "interpose/backend/finalize_together.hpp"

namespace heddle::backend {

int Backend::on_comm_delete(MPI_Comm /*comm*/, int /*keyval*/, void* attribute, void* extra) {
  static_cast<Backend*>(extra)->registry_.recycle(static_cast<CommState*>(attribute));
  return MPI_SUCCESS;
}

// While one exists the host serves the communicator. The ranks run their callbacks in orders of their own,
// heddle's among them, so what heddle does for the others may not depend on whether its own has run.
class Backend::Ending {
 public:
  Ending(Registry& registry, MPI_Comm comm) : registry_(registry), comm_(comm), outer_(innermost_) {
    innermost_ = this;
    CommState* const state = registry_.find(comm);
    if (state == nullptr) return;
    before_ = state->mode;
    state->mode = Mode::host;
  }
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;
  // Where the host has not freed it (MPI_COMM_WORLD, for example), or an error handler throws, it is as
  // before.
  ~Ending() {
    innermost_ = outer_;
    if (freed_) return;
    if (CommState* const state = registry_.find(comm_); state != nullptr) state->mode = before_;
  }

  void has_freed() { freed_ = true; }

  static bool is(MPI_Comm comm) {
    for (const Ending* one = innermost_; one != nullptr; one = one->outer_) {
      if (one->comm_ == comm) return true;
    }
    return false;
  }

 private:
  static thread_local const Ending* innermost_;

  Registry& registry_;
  const MPI_Comm comm_;
  const Ending* const outer_;
  Mode before_ = Mode::host;
  bool freed_ = false;
};

thread_local const Backend::Ending* Backend::Ending::innermost_ = nullptr;

bool Backend::is_ending(MPI_Comm comm) {
  return Ending::is(comm);
}

int Backend::free_comm(int (*next)(void*), MPI_Comm* comm) {
  // A callback of MPI_COMM_SELF's frees what a library keeps: there heddle has ended.
  if (comm == nullptr || *comm == MPI_COMM_NULL || closed_.load(std::memory_order_acquire)) return next(comm);
  const MPI_Comm ending = *comm;
  Ending until_freed(registry_, ending);
  const int rc = next(comm);
  if (rc == MPI_SUCCESS || *comm != ending) until_freed.has_freed();
  return rc;
}

// MPI_Finalize deletes the attributes of MPI_COMM_SELF first of all, while MPI still works: for who calls
// PMPI_Finalize, past end().
int Backend::on_finalize(MPI_Comm /*comm*/, int /*keyval*/, void* /*attribute*/, void* extra) {
  static_cast<Backend*>(extra)->shut_down();
  return MPI_SUCCESS;
}

// Before the callbacks of MPI_Finalize, in which the program may meet the other ranks: those run in an order
// of each rank's own, so that heddle may not meet them in one. Communicators that the user never freed are
// let go of; later calls, from such callbacks, are the host's. A tool's function that is next uses MPI and
// comes here again: the ranks meet as late as they can.
void Backend::end(bool last) {
  if (!ready_.load(std::memory_order_acquire)) return;
  if (last) {
    shut_down();
  } else {
    stop_serving();
  }
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
  if (has_shut_down_.exchange(true, std::memory_order_acq_rel)) return;
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
