// How a backend lets go: of communicators that are freed, and of everything in MPI_Finalize.
#include <fmt/format.h>

#include "base/launchers.hpp"
#include "device/device_path.hpp"
#include "device/nodes_path.hpp"
#include "interpose/backend/backend.hpp"
#include "interpose/backend/finalize_together.hpp"

namespace heddle::backend {

int Backend::on_comm_delete(MPI_Comm /*comm*/, int /*keyval*/, void* attribute, void* extra) {
  auto& backend = *static_cast<Backend*>(extra);
  auto& state = *static_cast<CommState*>(attribute);
  backend.let_go(state);
  backend.registry_.recycle(&state);
  return MPI_SUCCESS;
}

void Backend::let_go(CommState& state) {
  const std::uint64_t calls =
      state.communicator != nullptr ? state.communicator->calls() + state.barriers : 0;
  served_calls_ += calls;
  if (calls > 0) ++served_comms_;
  state.mode = Mode::host;
  state.savings.reset();
  state.communicator.reset();
  state.p2p.reset();
}

void Backend::sum_up() {
  if (world_rank_ != 0) return;
  if (!alone_ || speaks_first()) set_up_->say_rest();
  if (alone_ || !set_up_->config().enable || !set_up_->log().wants(LogLevel::info)) return;
  set_up_->log().info(served_calls_ == 0
                          ? "no communicator had as many calls that heddle would serve as it takes to be "
                            "taken over"
                          : fmt::format("{} calls of this rank were served, on {} communicator{}",
                                        served_calls_.load(), served_comms_.load(),
                                        served_comms_ == 1 ? "" : "s"));
}

// While one exists the host serves the communicator: the ranks run their callbacks in orders of their own.
class Backend::Ending {
 public:
  explicit Ending(MPI_Comm comm) : comm_(comm), outer_(innermost_) { innermost_ = this; }
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;
  ~Ending() { innermost_ = outer_; }

  static bool is(MPI_Comm comm) {
    for (const Ending* one = innermost_; one != nullptr; one = one->outer_) {
      if (one->comm_ == comm) return true;
    }
    return false;
  }

 private:
  static thread_local const Ending* innermost_;

  const MPI_Comm comm_;
  const Ending* const outer_;
};

thread_local const Backend::Ending* Backend::Ending::innermost_ = nullptr;

bool Backend::is_ending(MPI_Comm comm) {
  return Ending::is(comm);
}

// heddle lets go first, on all ranks alike: whether the host comes to its attribute before a callback of the
// program's that refuses is a matter of who set theirs first. What the host has not freed then is a new
// communicator to heddle; MPI_COMM_WORLD, which it never frees, stays what it was.
int Backend::free_comm(int (*next)(void*), MPI_Comm* comm) {
  // A callback of MPI_COMM_SELF's frees what a library keeps: there heddle has ended.
  if (comm == nullptr || *comm == MPI_COMM_NULL || *comm == MPI_COMM_WORLD ||
      closed_.load(std::memory_order_acquire))
    return next(comm);
  if (registry_.find(*comm) != nullptr) mpi_.Comm_delete_attr(*comm, comm_keyval_);
  const Ending until_freed(*comm);
  return next(comm);
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
  const bool was_closed = closed_.exchange(true, std::memory_order_acq_rel);
  // First of all, because the other ranks may end their communicators in another order.
  for (CommState* state : registry_.all()) {
    if (state->communicator == nullptr) continue;
    if (DevicePath* const path = state->communicator->device_path(); path != nullptr) path->let_go();
    if (NodesPath* const path = state->communicator->nodes_path(); path != nullptr) path->let_go();
  }
  for (CommState* state : registry_.all())
    let_go(*state);
  if (!was_closed) sum_up();
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
