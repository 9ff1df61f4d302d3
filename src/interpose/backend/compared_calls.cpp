// HEDDLE_CHECK=1: before heddle, or the host MPI by what the ranks agreed on, serves a call, the ranks compare what MPI wants to be equal in it.
#include "interpose/backend/backend.hpp"

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
  if (count < 0 || in == nullptr || out == nullptr || in == out || out == MPI_IN_PLACE)
    return CollectiveCall::of(Kind::allreduce_elsewhere);
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
  if (!packing_.inspect(buffer != nullptr ? buffer : &layout, type, &layout) ||
      __builtin_mul_overflow(static_cast<std::size_t>(count), layout.element_bytes, &bytes))
    return elsewhere;
  const bool is_missing =
      bytes > 0 && buffer == nullptr && (!packing_.inspect(buffer, type, &layout) || layout.contiguous);
  return is_missing ? elsewhere : CollectiveCall::bcast(bytes, root);
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
  return all_know ? refuse(status, name, comm) : fail(status, comm, state);
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
