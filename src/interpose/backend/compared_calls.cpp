// HEDDLE_CHECK=1: before heddle, or the host MPI by what the ranks agreed on, serves a call, the ranks
// compare what MPI wants to be equal in it. 2: and what heddle has given is compared with what the host
// gives.
#include <cstring>

#include "interpose/backend/entering.hpp"
#include "interpose/backend/host_results.hpp"

namespace heddle::backend {
namespace {

using Kind = CollectiveCall::Kind;

}  // namespace

// By the same rules as it is decided who serves the call (allreduce_on_host()).
CollectiveCall Backend::described(const void* in, const void* out, std::int64_t count, MPI_Datatype type,
                                  MPI_Op op, const CommState& state) {
  if (count == 0) return CollectiveCall::allreduce(0, DType::u8, Op::sum);
  Op mapped{};
  const TypeRow* const row = map_->find(type, op, &mapped);
  // Datatypes of the program's own may differ, and with them the counts.
  if (row == nullptr || (state.pairs != nullptr && !map_->has(*state.pairs, type, op)))
    return CollectiveCall::of(Kind::allreduce_elsewhere);
  if (count < 0 || is_mistake(in, out, count)) return CollectiveCall::of(Kind::allreduce_elsewhere);
  return CollectiveCall::allreduce(static_cast<std::size_t>(count), row->type, mapped);
}

// Datatypes and counts may differ, as long as the bytes are the same. Of no bytes the buffer may be anything.
CollectiveCall Backend::described(const void* buffer, std::int64_t count, MPI_Datatype type, int root,
                                  const CommState& state) {
  const CollectiveCall elsewhere = CollectiveCall::of(Kind::bcast_elsewhere);
  if (count < 0 || root < 0 || root >= state.size || buffer == MPI_IN_PLACE) return elsewhere;
  if (count == 0) return CollectiveCall::bcast(0, root);
  Packing::Layout layout;
  std::size_t bytes = 0;
  bool missing = false;
  if (!packing_.look_at(buffer, type, &layout, &missing) ||
      __builtin_mul_overflow(static_cast<std::size_t>(count), layout.element_bytes, &bytes))
    return elsewhere;
  return missing && bytes > 0 ? elsewhere : CollectiveCall::bcast(bytes, root);
}

bool Backend::compares(const CommState& state) {
  return state.communicator != nullptr && state.communicator->compares() &&
         (state.mode == Mode::heddle || state.mode == Mode::partly);
}

// The call at which heddle takes a communicator over is compared after that (enter()).
CommState* Backend::comparing(MPI_Comm comm) {
  CommState* state = registry_.find_fast(comm);
  if (state == nullptr) state = registry_.find(comm);
  return state != nullptr && compares(*state) ? state : nullptr;
}

int Backend::compare(const CollectiveCall& call, const char* name, MPI_Comm comm, CommState& state) {
  const Status status = state.communicator->compare(call);
  if (status.ok()) return MPI_SUCCESS;
  const bool all_know = status.code() == Code::invalid_argument && !state.communicator->failed();
  return all_know ? refuse(status, name, comm, MPI_ERR_OTHER) : fail(status, comm, state);
}

int Backend::allreduce_checked(const void* in, void* out, std::int64_t count, MPI_Datatype type, MPI_Op op,
                               MPI_Comm comm, const std::function<int()>& serve) {
  CommState* const state = comparing(comm);
  if (state == nullptr) return serve();
  const CollectiveCall call = described(in, out, count, type, op, *state);
  int rc = compare(call, "MPI_Allreduce", comm, *state);
  if (rc != MPI_SUCCESS) return rc;
  const bool repeated = repeats(call, type, op, *state);
  Result<std::vector<std::byte>> before = std::vector<std::byte>();
  if (repeated && in == MPI_IN_PLACE) before = bytes_of(out, call.count, type);
  rc = serve();
  if (rc != MPI_SUCCESS || !repeated) return rc;
  if (in != MPI_IN_PLACE) before = bytes_of(in, call.count, type);
  const Result<std::vector<std::byte>> given = bytes_of(out, call.count, type);
  if (!before.ok() || !given.ok()) return fail(before.ok() ? given.status() : before.status(), comm, *state);
  Op mapped{};
  const TypeRow* const row = map_->find(type, op, &mapped);
  const RepeatedSum sum{before.value().data(), given.value().data(), call.count, row->type, mapped, type, op};
  HostResults host(mpi_, comm, state->rank, state->size);
  host.make_room(sum);
  return repeat("MPI_Allreduce", comm, *state, [&] { return host.allreduce(sum); });
}

int Backend::bcast_checked(void* buffer, std::int64_t count, MPI_Datatype type, int root, MPI_Comm comm,
                           const std::function<int()>& serve) {
  CommState* const state = comparing(comm);
  if (state == nullptr) return serve();
  const CollectiveCall call = described(buffer, count, type, root, *state);
  int rc = compare(call, "MPI_Bcast", comm, *state);
  if (rc != MPI_SUCCESS) return rc;
  rc = serve();
  if (rc != MPI_SUCCESS || !repeats(call, type, MPI_OP_NULL, *state)) return rc;
  const Result<std::vector<std::byte>> given = bytes_of(buffer, static_cast<std::size_t>(count), type);
  if (!given.ok()) return fail(given.status(), comm, *state);
  HostResults host(mpi_, comm, state->rank, state->size);
  host.make_room(given.value().size());
  return repeat("MPI_Bcast", comm, *state,
                [&] { return host.bcast(given.value().data(), given.value().size(), root); });
}

int Backend::barrier_checked(MPI_Comm comm) {
  if (CommState* const state = comparing(comm); state != nullptr) {
    const int rc = compare(CollectiveCall::of(Kind::barrier), "MPI_Barrier", comm, *state);
    if (rc != MPI_SUCCESS) return rc;
  }
  return barrier_unchecked(comm);
}

// By what is the same on all ranks.
bool Backend::repeats(const CollectiveCall& call, MPI_Datatype type, MPI_Op op, const CommState& state) {
  if (set_up_->config().check != CheckSetting::results || call.count == 0) return false;
  if (call.kind == Kind::bcast) return call.count <= packing_.most_bytes();
  if (call.kind == Kind::allgather)
    return call.count <= packing_.most_bytes() / static_cast<std::size_t>(state.size);
  Op mapped{};
  const bool folds = call.kind == Kind::allreduce || call.kind == Kind::reduce;
  const TypeRow* const row = folds ? map_->find(type, op, &mapped) : nullptr;
  if (row == nullptr) return false;
  // Who asked for other results gets them.
  return state.savings == nullptr || call.kind == Kind::reduce ||
         !state.savings->loses(row->type, mapped, call.count * dtype_size(row->type));
}

Result<std::vector<std::byte>> Backend::bytes_of(const void* buffer, std::size_t count, MPI_Datatype type) {
  HostView view;
  const void* there = buffer;
  if (device_buffers_.possible()) {
    HEDDLE_TRY(device_buffers_.view(const_cast<void*>(buffer), count, type, &view));
    HEDDLE_TRY(view.load());
    there = view.buffer();
  }
  Packing::Layout layout;
  if (!packing_.inspect(there, type, &layout))
    return Status(Code::system, "HEDDLE_CHECK=2: the host MPI does not know the datatype any more");
  std::vector<std::byte> bytes(count * layout.element_bytes);
  if (layout.contiguous)
    std::memcpy(bytes.data(), there, bytes.size());
  else if (!packing_.pack(there, count, type, bytes.data(), bytes.size()))
    return Status(Code::system, "HEDDLE_CHECK=2: MPI_Pack of a derived datatype failed");
  return bytes;
}

}  // namespace heddle::backend
