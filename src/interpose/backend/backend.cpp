#include "interpose/backend/backend.hpp"

#include <new>
#include <type_traits>
#include <utility>

#include "interpose/backend/entering.hpp"

namespace heddle::backend {

// ---- What counts

// What counts towards the take-over: what heddle would serve, so that the ranks agree. A mistake that one
// rank makes, and mends, the others know nothing of.
template <typename Count>
std::size_t Backend::counted(const void* in, const void* out, Count count, MPI_Datatype type,
                             MPI_Op op) const {
  if (count <= 0 || is_mistake(in, out, count)) return 0;
  return static_cast<std::size_t>(count) * map_->known_size(type, op);
}

template <typename Count>
std::size_t Backend::counted(const void* buffer, Count count, MPI_Datatype type, int root,
                             const CommState& state) const {
  void* piece = nullptr;
  std::size_t bytes = 0;
  const bool served = count > 0 && buffer != MPI_IN_PLACE &&
                      is_served(buffer, static_cast<std::size_t>(count), type, root, state, &piece, &bytes);
  return served ? bytes : 0;
}

// ---- The collectives

template <typename Count>
int Backend::host_allreduce(const void* in, void* out, Count count, MPI_Datatype type, MPI_Op op,
                            MPI_Comm comm) {
  if constexpr (std::is_same_v<Count, int>) {
    return mpi_.Allreduce(in, out, count, type, op, comm);
  } else {
    return mpi_.Allreduce_c(in, out, count, type, op, comm);
  }
}

template <typename Count>
int Backend::host_bcast(void* buffer, Count count, MPI_Datatype type, int root, MPI_Comm comm) {
  if constexpr (std::is_same_v<Count, int>) {
    return mpi_.Bcast(buffer, count, type, root, comm);
  } else {
    return mpi_.Bcast_c(buffer, count, type, root, comm);
  }
}

// What enter() asks of a call, and has it do.
template <typename Count>
struct Backend::AllreduceCall {
  Backend& backend;
  const void* in;
  void* out;
  Count count;
  MPI_Datatype type;
  MPI_Op op;
  MPI_Comm comm;

  bool is_due(CommState& state) const {
    return Backend::is_due(state, backend.counted(in, out, count, type, op));
  }
  bool is_agreed(const CommState& state) const { return backend.map_->has(*state.pairs, type, op); }
  static constexpr const char* kName = "MPI_Allreduce";
  CollectiveCall described(const CommState& state) const {
    return backend.described(in, out, count, type, op, state);
  }
  int host() const { return backend.host_allreduce(in, out, count, type, op, comm); }
};

template <typename Count>
struct Backend::BcastCall {
  Backend& backend;
  void* buffer;
  Count count;
  MPI_Datatype type;
  int root;
  MPI_Comm comm;

  bool is_due(CommState& state) const {
    return Backend::is_due(state, backend.counted(buffer, count, type, root, state));
  }
  bool is_agreed(const CommState& /*state*/) const { return true; }
  static constexpr const char* kName = "MPI_Bcast";
  CollectiveCall described(const CommState& state) const {
    return backend.described(buffer, count, type, root, state);
  }
  int host() const { return backend.host_bcast(buffer, count, type, root, comm); }
};

struct Backend::BarrierCall {
  Backend& backend;
  MPI_Comm comm;

  bool is_due(CommState& state) const { return is_due_by_worth(state, 0); }
  bool is_agreed(const CommState& /*state*/) const { return true; }
  static constexpr const char* kName = "MPI_Barrier";
  CollectiveCall described(const CommState& /*state*/) const {
    return CollectiveCall::of(CollectiveCall::Kind::barrier);
  }
  int host() const { return backend.mpi_.Barrier(comm); }
};

template <typename Count>
inline int Backend::allreduce_on_host(const void* in, void* out, Count count, MPI_Datatype type, MPI_Op op,
                                      MPI_Comm comm, const Staged* staged) {
  const auto host = [&] { return host_allreduce(in, out, count, type, op, comm); };
  CommState* state = served(comm);
  if (state == nullptr) [[unlikely]] {
    int rc = MPI_SUCCESS;
    // Its own copy of the arguments: those that are looked at from elsewhere would not stay in registers.
    state = enter(comm, AllreduceCall<Count>{*this, in, out, count, type, op, comm}, &rc);
    if (state == nullptr) return rc;
  }

  Op mapped;
  const TypeRow* row = map_->find(type, op, &mapped);
  if (row == nullptr || count <= 0) [[unlikely]] {
    if (state->explain) {
      explain_host(Collective::allreduce, row == nullptr ? Reason::datatype_or_op : Reason::nothing_to_do,
                   *state);
    }
    return host();
  }
  if (is_mistake(in, out, count)) [[unlikely]] {
    if (state->explain) explain_host(Collective::allreduce, Reason::arguments, *state);
    return host();
  }
  const auto elements = static_cast<std::size_t>(count);
  const void* from = in == MPI_IN_PLACE ? out : in;
  if (state->savings != nullptr) [[unlikely]]
    return allreduce_saving(from, out, elements, row->type, mapped, comm, *state, staged);
  return finish(state->communicator->allreduce(from, out, elements, row->type, mapped), comm, *state);
}

// Between nodes. Apart, so that what is served within one pays one test for it.
[[gnu::noinline]] int Backend::allreduce_saving(const void* in, void* out, std::size_t count, DType type,
                                                Op op, MPI_Comm comm, CommState& state,
                                                const Staged* staged) {
  Savings& savings = *state.savings;
  const std::size_t bytes = count * dtype_size(type);
  if (savings.loses(type, op, bytes)) {
    const void* const key = staged != nullptr ? staged->key : in;
    return finish(savings.compress(in, out, count, type, key), comm, state);
  }
  const bool looks = savings.looks(type, op, bytes);
  const bool asked = staged != nullptr && staged->asked;
  if (!asked && looks && savings.wants_look(count)) {
    const Result<bool> served = savings.by_entries({in, out, count, type});
    // What all were told leaves the communicator as it was. After any other failure it fails in the next call
    // too.
    if (!served.ok()) return refuse(served.status(), "MPI_Allreduce", comm);
    if (served.value()) return MPI_SUCCESS;
  }
  const Status summed = state.communicator->allreduce(in, out, count, type, op);
  // Made again the call would count twice here, and this rank look in another one than the others.
  if (looks && summed.code() == Code::out_of_memory) state.communicator->give_up(summed);
  return finish(summed, comm, state);
}

template <typename Count>
inline int Backend::bcast_on_host(void* buffer, Count count, MPI_Datatype type, int root, MPI_Comm comm) {
  const auto host = [&] { return host_bcast(buffer, count, type, root, comm); };
  CommState* state = served(comm);
  if (state == nullptr) [[unlikely]] {
    int rc = MPI_SUCCESS;
    // Its own copy of the arguments: those that are looked at from elsewhere would not stay in registers.
    state = enter(comm, BcastCall<Count>{*this, buffer, count, type, root, comm}, &rc);
    if (state == nullptr) return rc;
  }

  Packing::Layout layout;
  if (count < 0 || root < 0 || root >= state->size || buffer == MPI_IN_PLACE ||
      !packing_.inspect(buffer, type, &layout)) [[unlikely]] {
    if (state->explain) explain_host(Collective::bcast, Reason::arguments, *state);
    return host();
  }
  // From here on the number of bytes alone decides, because it is all that the ranks are sure to have in
  // common.
  std::size_t bytes = 0;
  const auto elements = static_cast<std::size_t>(count);
  const bool too_large =
      __builtin_mul_overflow(elements, layout.element_bytes, &bytes) || bytes > packing_.most_bytes();
  if (too_large || bytes == 0) [[unlikely]] {
    if (state->explain)
      explain_host(Collective::bcast, too_large ? Reason::too_large : Reason::nothing_to_do, *state);
    return host();
  }
  if (!layout.contiguous) return bcast_packed(buffer, elements, type, bytes, root, comm, *state);
  if (buffer == nullptr) [[unlikely]]
    return host();
  return finish(state->communicator->bcast(buffer, bytes, root), comm, *state);
}

int Backend::barrier_unchecked(MPI_Comm comm) {
  CommState* state = served(comm);
  if (state == nullptr) [[unlikely]] {
    int rc = MPI_SUCCESS;
    state = enter(comm, BarrierCall{*this, comm}, &rc);
    if (state == nullptr) return rc;
  }
  ++state->barriers;
  return finish(state->communicator->barrier(), comm, *state);
}

// ---- Buffers on a GPU

template <typename Count>
[[gnu::noinline]] int Backend::allreduce_anywhere(const void* in, void* out, Count count, MPI_Datatype type,
                                                  MPI_Op op, MPI_Comm comm) {
  // What has no meaning the host may report.
  if (count <= 0 || in == nullptr || out == MPI_IN_PLACE || !make_ready() || !device_buffers_.possible())
    return allreduce_on_host(in, out, count, type, op, comm, nullptr);
  StagedSum sum(device_buffers_, mpi_, packing_, in, out, static_cast<std::size_t>(count), type);
  Staged staged{sum.source()};
  Result<bool> served = allreduce_by_entries(sum, op, comm, &staged.asked);
  if (served.ok() && !served.value()) {
    served = allreduce_losing(sum, op, comm);
    // Told to nobody, unlike those of the others.
    if (!served.ok()) return refuse_image(served.status(), "MPI_Allreduce", comm);
  }
  if (served.ok() && !served.value()) served = allreduce_on_gpus(in, out, sum.count(), type, op, comm);
  if (!served.ok()) return refuse(served.status(), "MPI_Allreduce", comm);
  if (served.value()) return MPI_SUCCESS;
  Status status = sum.load_output();
  if (status.ok()) status = sum.load_input();
  if (!status.ok()) return refuse_image(status, "MPI_Allreduce", comm);

  const int rc = allreduce_on_host(sum.input(), sum.output(), count, type, op, comm, &staged);
  if (rc != MPI_SUCCESS) return rc;
  status = after_allreduce(in, out, sum.count(), sum.beside(), type, op, comm);
  if (Status stored = sum.store(); status.ok()) status = std::move(stored);
  return status.ok() ? rc : refuse(status, "MPI_Allreduce", comm);
}

template <typename Count>
[[gnu::noinline]] int Backend::bcast_anywhere(void* buffer, Count count, MPI_Datatype type, int root,
                                              MPI_Comm comm) {
  // The buffer of MPI_PROC_NULL, on an intercommunicator, is none.
  if (count <= 0 || root == MPI_PROC_NULL || buffer == MPI_IN_PLACE || !make_ready() ||
      !device_buffers_.possible())
    return bcast_on_host(buffer, count, type, root, comm);
  const auto elements = static_cast<std::size_t>(count);
  const Result<bool> by_gpus = bcast_on_gpus(buffer, elements, type, root, comm);
  if (!by_gpus.ok()) return refuse(by_gpus.status(), "MPI_Bcast", comm);
  if (by_gpus.value()) return MPI_SUCCESS;
  StagedViews views;
  const HostView& view = views.written;
  Status status = views.view_written(device_buffers_, mpi_, buffer, elements, type);
  bool sends = true;
  bool receives = true;
  if (status.ok() && view.beside()) {
    // A communicator that is known is one, and may be asked.
    int is_inter = 1;
    int rank = -1;
    if (registry_.find(comm) != nullptr && mpi_.Comm_test_inter(comm, &is_inter) == MPI_SUCCESS &&
        is_inter == 0 && mpi_.Comm_rank(comm, &rank) == MPI_SUCCESS) {
      sends = rank == root;
      receives = !sends;
    }
    if (sends) status = views.written.load();
  }
  if (!status.ok()) return refuse_image(status, "MPI_Bcast", comm);
  const int rc = bcast_on_host(view.buffer(), count, type, root, comm);
  if (rc != MPI_SUCCESS) return rc;
  status = after_bcast(buffer, view.beside(), elements, type, root, comm);
  if (Status stored = receives ? views.store(mpi_, packing_) : Status(); status.ok())
    status = std::move(stored);
  return status.ok() ? rc : refuse(status, "MPI_Bcast", comm);
}

template <typename Count>
inline int Backend::allreduce_unchecked(const void* in, void* out, Count count, MPI_Datatype type, MPI_Op op,
                                        MPI_Comm comm) {
  if (device_buffers_.possible()) [[unlikely]]
    return allreduce_anywhere(in, out, count, type, op, comm);
  return allreduce_on_host(in, out, count, type, op, comm, nullptr);
}

template <typename Count>
inline int Backend::bcast_unchecked(void* buffer, Count count, MPI_Datatype type, int root, MPI_Comm comm) {
  if (device_buffers_.possible()) [[unlikely]]
    return bcast_anywhere(buffer, count, type, root, comm);
  return bcast_on_host(buffer, count, type, root, comm);
}

template <typename Count>
int Backend::allreduce(const void* in, void* out, Count count, MPI_Datatype type, MPI_Op op,
                       MPI_Comm comm) try {
  if (checks_.load(std::memory_order_relaxed)) [[unlikely]]
    return allreduce_checked(in, out, count, type, op, comm,
                             [=, this] { return allreduce_unchecked(in, out, count, type, op, comm); });
  return allreduce_unchecked(in, out, count, type, op, comm);
} catch (const std::bad_alloc&) {
  return out_of_memory("MPI_Allreduce", comm);
}

template <typename Count>
int Backend::bcast(void* buffer, Count count, MPI_Datatype type, int root, MPI_Comm comm) try {
  if (checks_.load(std::memory_order_relaxed)) [[unlikely]]
    return bcast_checked(buffer, count, type, root, comm,
                         [=, this] { return bcast_unchecked(buffer, count, type, root, comm); });
  return bcast_unchecked(buffer, count, type, root, comm);
} catch (const std::bad_alloc&) {
  return out_of_memory("MPI_Bcast", comm);
}

int Backend::barrier(MPI_Comm comm) try {
  if (checks_.load(std::memory_order_relaxed)) [[unlikely]]
    return barrier_checked(comm);
  return barrier_unchecked(comm);
} catch (const std::bad_alloc&) {
  return out_of_memory("MPI_Barrier", comm);
}

// ---- Explaining

const char* Backend::algorithm(Collective collective, std::size_t bytes, MPI_Comm comm) {
  CommState* state = registry_.find(comm);
  if (state == nullptr || (state->mode != Mode::heddle && state->mode != Mode::partly) ||
      (bytes == 0 && collective != Collective::barrier))
    return "host";
  return state->communicator->algorithm(collective, bytes);
}

void Backend::explain_host(Collective collective, Reason reason, CommState& state) {
  static constexpr const char* kReasons[] = {"arguments that the host is to judge",
                                             "an operation or datatype that heddle does not serve", "no data",
                                             "more bytes than the host can pack"};
  const unsigned bit =
      1u << (static_cast<unsigned>(reason) * kCollectives + static_cast<unsigned>(collective));
  if ((state.explained & bit) != 0) return;
  state.explained |= bit;
  set_up_->log().info(state.name + ": " + collective_name(collective) +
                      ": left to the host MPI: " + kReasons[static_cast<std::size_t>(reason)]);
}

template int Backend::allreduce<int>(const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm);
template int Backend::allreduce<MPI_Count>(const void*, void*, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm);
template int Backend::bcast<int>(void*, int, MPI_Datatype, int, MPI_Comm);
template int Backend::bcast<MPI_Count>(void*, MPI_Count, MPI_Datatype, int, MPI_Comm);

}  // namespace heddle::backend
