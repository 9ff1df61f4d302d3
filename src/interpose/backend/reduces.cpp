// MPI_Reduce: served as MPI_Allreduce is, but that the root alone has an output.
#include <new>
#include <type_traits>
#include <utility>

#include "interpose/backend/entering.hpp"
#include "interpose/backend/host_results.hpp"
#include "interpose/backend/staged_calls.hpp"

namespace heddle::backend {

template <typename Count>
int Backend::host_reduce(const void* in, void* out, Count count, MPI_Datatype type, MPI_Op op, int root,
                         MPI_Comm comm) {
  if constexpr (std::is_same_v<Count, int>) {
    return mpi_.Reduce(in, out, count, type, op, root, comm);
  } else {
    return mpi_.Reduce_c(in, out, count, type, op, root, comm);
  }
}

template <typename Count>
struct Backend::ReduceCall {
  Backend& backend;
  const void* in;
  void* out;
  Count count;
  MPI_Datatype type;
  MPI_Op op;
  int root;
  MPI_Comm comm;

  bool is_due(CommState& state) const {
    if (count <= 0 || backend.is_mistake(in, out, count, root, state)) return false;
    const std::size_t bytes = static_cast<std::size_t>(count) * backend.map_->known_size(type, op);
    if (bytes == 0) return false;
    return backend.is_due_in_time(state, bytes);
  }
  bool is_agreed(const CommState& state) const { return backend.map_->has(*state.pairs, type, op); }
  static constexpr const char* kName = "MPI_Reduce";
  CollectiveCall described(const CommState& state) const {
    return backend.described(in, out, count, type, op, root, state);
  }
  int host() const { return backend.host_reduce(in, out, count, type, op, root, comm); }
};

template <typename Count>
inline int Backend::reduce_on_host(const void* in, void* out, Count count, MPI_Datatype type, MPI_Op op,
                                   int root, MPI_Comm comm) {
  const auto host = [&] { return host_reduce(in, out, count, type, op, root, comm); };
  CommState* state = served(comm);
  if (state == nullptr) [[unlikely]] {
    int rc = MPI_SUCCESS;
    // Its own copy of the arguments: those that are looked at from elsewhere would not stay in registers.
    state = enter(comm, ReduceCall<Count>{*this, in, out, count, type, op, root, comm}, &rc);
    if (state == nullptr) return rc;
  }

  Op mapped;
  const TypeRow* row = map_->find(type, op, &mapped);
  if (row == nullptr || count <= 0) [[unlikely]] {
    if (state->explain) {
      explain_host(Collective::reduce, row == nullptr ? Reason::datatype_or_op : Reason::nothing_to_do,
                   *state);
    }
    return host();
  }
  if (is_mistake(in, out, count, root, *state)) [[unlikely]] {
    if (state->explain) explain_host(Collective::reduce, Reason::arguments, *state);
    return host();
  }
  const void* from = in == MPI_IN_PLACE ? out : in;
  return finish(
      state->communicator->reduce(from, out, static_cast<std::size_t>(count), row->type, mapped, root), comm,
      *state);
}

// By way of images on the host.
template <typename Count>
[[gnu::noinline]] int Backend::reduce_anywhere(const void* in, void* out, Count count, MPI_Datatype type,
                                               MPI_Op op, int root, MPI_Comm comm) {
  const bool may_be_there = count > 0 && root != MPI_PROC_NULL && make_ready() &&
                            device_buffers_.possible() &&
                            (device_buffers_.may_lie_on_gpu(in) || device_buffers_.may_lie_on_gpu(out));
  const Ranks ranks = may_be_there ? Ranks::of(mpi_, comm) : Ranks();
  const bool reads = ranks.size > 0 && ranks.is_served_by(root) && in != MPI_IN_PLACE;
  const bool writes = ranks.size > 0 && ranks.is_root(root) && out != MPI_IN_PLACE;
  const auto elements = static_cast<std::size_t>(count);
  StagedViews views;
  Status status;
  if (reads) status = device_buffers_.view(const_cast<void*>(in), elements, type, &views.read);
  if (status.ok() && reads) status = views.read.load();
  if (status.ok() && writes) status = views.view_written(device_buffers_, mpi_, out, elements, type);
  if (status.ok() && writes && in == MPI_IN_PLACE) status = views.written.load();
  // Nobody would see it, of two images.
  if (status.ok() && reads && writes && in == out && views.written.beside())
    status = Status(Code::invalid_argument, "both buffers are the same one (MPI_IN_PLACE is for that)");
  if (!status.ok()) return refuse_image(status, "MPI_Reduce", comm);
  const int rc = reduce_on_host(reads ? views.read.buffer() : in, writes ? views.written.buffer() : out,
                                count, type, op, root, comm);
  if (rc != MPI_SUCCESS || !writes) return rc;
  status = views.store(mpi_, packing_);
  return status.ok() ? rc : refuse(status, "MPI_Reduce", comm);
}

template <typename Count>
inline int Backend::reduce_unchecked(const void* in, void* out, Count count, MPI_Datatype type, MPI_Op op,
                                     int root, MPI_Comm comm) {
  if (device_buffers_.possible()) [[unlikely]]
    return reduce_anywhere(in, out, count, type, op, root, comm);
  return reduce_on_host(in, out, count, type, op, root, comm);
}

template <typename Count>
int Backend::reduce(const void* in, void* out, Count count, MPI_Datatype type, MPI_Op op, int root,
                    MPI_Comm comm) try {
  if (checks_.load(std::memory_order_relaxed)) [[unlikely]]
    return reduce_checked(in, out, count, type, op, root, comm,
                          [=, this] { return reduce_unchecked(in, out, count, type, op, root, comm); });
  return reduce_unchecked(in, out, count, type, op, root, comm);
} catch (const std::bad_alloc&) {
  return out_of_memory("MPI_Reduce", comm);
}

// ---- HEDDLE_CHECK

// By the same rules as it is decided who serves the call (reduce_on_host()).
CollectiveCall Backend::described(const void* in, const void* out, std::int64_t count, MPI_Datatype type,
                                  MPI_Op op, int root, const CommState& state) {
  const CollectiveCall elsewhere = CollectiveCall::of(CollectiveCall::Kind::reduce_elsewhere);
  if (count == 0) return CollectiveCall::reduce(0, DType::u8, Op::sum, root);
  Op mapped{};
  const TypeRow* const row = map_->find(type, op, &mapped);
  if (row == nullptr || (state.pairs != nullptr && !map_->has(*state.pairs, type, op)) || count < 0 ||
      is_mistake(in, out, count, root, state))
    return elsewhere;
  return CollectiveCall::reduce(static_cast<std::size_t>(count), row->type, mapped, root);
}

int Backend::reduce_checked(const void* in, void* out, std::int64_t count, MPI_Datatype type, MPI_Op op,
                            int root, MPI_Comm comm, const std::function<int()>& serve) {
  CommState* const state = comparing(comm);
  if (state == nullptr) return serve();
  const CollectiveCall call = described(in, out, count, type, op, root, *state);
  int rc = compare(call, "MPI_Reduce", comm, *state);
  if (rc != MPI_SUCCESS) return rc;
  const bool repeated = repeats(call, type, op, *state);
  const bool is_root = state->rank == root;
  Result<std::vector<std::byte>> before = std::vector<std::byte>();
  if (repeated && in == MPI_IN_PLACE) before = bytes_of(out, call.count, type);
  rc = serve();
  if (rc != MPI_SUCCESS || !repeated) return rc;
  if (in != MPI_IN_PLACE) before = bytes_of(in, call.count, type);
  Result<std::vector<std::byte>> given = std::vector<std::byte>();
  if (is_root) given = bytes_of(out, call.count, type);
  if (!before.ok() || !given.ok()) return fail(before.ok() ? given.status() : before.status(), comm, *state);
  Op mapped{};
  const TypeRow* const row = map_->find(type, op, &mapped);
  const RepeatedSum sum{before.value().data(),
                        is_root ? given.value().data() : nullptr,
                        call.count,
                        row->type,
                        mapped,
                        type,
                        op};
  HostResults host(mpi_, comm, state->rank, state->size);
  host.make_room(sum);
  return repeat("MPI_Reduce", comm, *state, [&] { return host.reduce(sum); });
}

template int Backend::reduce<int>(const void*, void*, int, MPI_Datatype, MPI_Op, int, MPI_Comm);
template int Backend::reduce<MPI_Count>(const void*, void*, MPI_Count, MPI_Datatype, MPI_Op, int, MPI_Comm);

}  // namespace heddle::backend
