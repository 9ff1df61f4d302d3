// HEDDLE_CHECK=1: before heddle, or the host MPI by what the ranks agreed on, serves a call, the ranks compare what MPI wants to be equal in it.
#include "interpose/backend/backend.hpp"

namespace heddle::backend {
namespace {

using Kind = CollectiveCall::Kind;

}  // namespace

CollectiveCall Backend::described(const void* in, const void* out, std::int64_t count, MPI_Datatype type,
                                  MPI_Op op, const CommState& state) {
  const bool is_mistake = in == nullptr || out == nullptr || in == out || out == MPI_IN_PLACE;
  if (count < 0 || (count > 0 && is_mistake)) return CollectiveCall::of(Kind::refused);
  Op mapped{};
  const TypeRow* const row = map_->find(type, op, &mapped);
  // Datatypes of the program's own may differ, and with them the counts.
  if (row == nullptr || (state.pairs != nullptr && !map_->has(*state.pairs, type, op)))
    return CollectiveCall::of(Kind::allreduce_elsewhere);
  return CollectiveCall::allreduce(static_cast<std::size_t>(count), row->type, mapped);
}

// Datatypes and counts may differ, as long as the bytes are the same.
CollectiveCall Backend::described(const void* buffer, std::int64_t count, MPI_Datatype type, int root,
                                  const CommState& state) {
  Packing::Layout layout;
  std::size_t bytes = 0;
  if (count < 0 || root < 0 || root >= state.size || buffer == MPI_IN_PLACE ||
      !packing_.inspect(buffer, type, &layout) ||
      __builtin_mul_overflow(static_cast<std::size_t>(count), layout.element_bytes, &bytes) ||
      (buffer == nullptr && layout.contiguous && bytes > 0))
    return CollectiveCall::of(Kind::refused);
  return CollectiveCall::bcast(bytes, root);
}

// Those that count towards the take-over are the host's alone.
CommState* Backend::comparing(MPI_Comm comm) {
  CommState* state = registry_.find_fast(comm);
  if (state == nullptr) state = registry_.find(comm);
  if (state == nullptr) return nullptr;
  return state->mode == Mode::heddle || state->mode == Mode::partly ? state : nullptr;
}

int Backend::compare(const CollectiveCall& call, const char* name, MPI_Comm comm, CommState& state) {
  const Status status = state.communicator->compare(call);
  if (status.ok()) return MPI_SUCCESS;
  return state.communicator->failed() ? fail(status, comm, state) : refuse(status, name, comm);
}

int Backend::compare_allreduce(const void* in, const void* out, std::int64_t count, MPI_Datatype type,
                               MPI_Op op, MPI_Comm comm) {
  CommState* const state = comparing(comm);
  if (state == nullptr) return MPI_SUCCESS;
  return compare(described(in, out, count, type, op, *state), "MPI_Allreduce", comm, *state);
}

int Backend::compare_bcast(const void* buffer, std::int64_t count, MPI_Datatype type, int root,
                           MPI_Comm comm) {
  CommState* const state = comparing(comm);
  if (state == nullptr) return MPI_SUCCESS;
  return compare(described(buffer, count, type, root, *state), "MPI_Bcast", comm, *state);
}

}  // namespace heddle::backend
