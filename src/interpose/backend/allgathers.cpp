// MPI_Allgather: what counts, and is served, is the bytes that come of each rank, as in a bcast.
#include <algorithm>
#include <new>
#include <vector>

#include "interpose/backend/entering.hpp"
#include "interpose/backend/host_results.hpp"
#include "interpose/backend/packed_views.hpp"
#include "interpose/backend/staged_calls.hpp"

namespace heddle::backend {
namespace {

Status cannot_pack() {
  return Status(Code::system, "MPI_Pack or MPI_Unpack failed in MPI_Allgather of a derived datatype");
}

}  // namespace

int Backend::host_allgather(const Allgather& call) {
  if (!call.large) {
    return mpi_.Allgather(call.in, static_cast<int>(call.in_count), call.in_type, call.out,
                          static_cast<int>(call.out_count), call.out_type, call.comm);
  }
  return mpi_.Allgather_c(call.in, call.in_count, call.in_type, call.out, call.out_count, call.out_type,
                          call.comm);
}

// By what comes, which is the same on all ranks; as many bytes should be sent. Where they are fewer, the rest
// of this rank's place is sent as it is, as hosts do.
Backend::Reason Backend::inspect(const Allgather& call, const CommState& state, GatheredBytes* found) const {
  bool no_out = false;
  if (call.out_count < 0 || call.out == MPI_IN_PLACE ||
      !packing_.look_at(call.out, call.out_type, &found->out, &no_out))
    return Reason::arguments;
  const auto elements = static_cast<std::size_t>(call.out_count);
  const bool too_large =
      __builtin_mul_overflow(elements, found->out.element_bytes, &found->each) ||
      __builtin_mul_overflow(found->each, static_cast<std::size_t>(state.size), &found->all) ||
      found->all > packing_.most_bytes();
  found->given = found->each;
  if (too_large) return Reason::too_large;
  bool no_in = false;
  if (call.in != MPI_IN_PLACE) {
    if (call.in_count < 0 || !packing_.look_at(call.in, call.in_type, &found->in, &no_in) ||
        __builtin_mul_overflow(static_cast<std::size_t>(call.in_count), found->in.element_bytes,
                               &found->given) ||
        found->given > found->each)
      return Reason::arguments;
  }
  if (found->each == 0) return Reason::nothing_to_do;
  return no_out || (no_in && found->given > 0) || is_own_place(call, state, found->each) ? Reason::arguments
                                                                                         : Reason::none;
}

// Which hosts that look report. Where the host does not, some ranks may pass it, and heddle does the same.
bool Backend::is_own_place(const Allgather& call, const CommState& state, std::size_t each) const {
  return !most_aliased_.allgather && call.in != nullptr && call.in != MPI_IN_PLACE && call.out != nullptr &&
         call.in_type == call.out_type && call.in_count == call.out_count &&
         call.in == static_cast<const std::byte*>(call.out) + static_cast<std::size_t>(state.rank) * each;
}

struct Backend::AllgatherCall {
  Backend& backend;
  const Allgather& call;

  // At their start many programs gather the names of their hosts and the like.
  bool is_due(CommState& state) const {
    GatheredBytes bytes;
    return backend.inspect(call, state, &bytes) == Reason::none && backend.is_due_in_time(state, bytes.all);
  }
  bool is_agreed(const CommState& /*state*/) const { return true; }
  static constexpr const char* kName = "MPI_Allgather";
  CollectiveCall described(const CommState& state) const { return backend.described(call, state); }
  int host() const { return backend.host_allgather(call); }
};

int Backend::allgather_on_host(const Allgather& call) {
  CommState* state = served(call.comm);
  if (state == nullptr) [[unlikely]] {
    int rc = MPI_SUCCESS;
    state = enter(call.comm, AllgatherCall{*this, call}, &rc);
    if (state == nullptr) return rc;
  }
  GatheredBytes bytes;
  if (const Reason reason = inspect(call, *state, &bytes); reason != Reason::none) [[unlikely]] {
    if (state->explain) explain_host(Collective::allgather, reason, *state);
    return host_allgather(call);
  }
  const bool is_plain =
      bytes.out.contiguous && (call.in == MPI_IN_PLACE || (bytes.in.contiguous && bytes.given == bytes.each));
  if (!is_plain) [[unlikely]]
    return allgather_packed(call, bytes, *state);
  const void* const in = call.in == MPI_IN_PLACE ? nullptr : call.in;
  return finish(state->communicator->allgather(in, call.out, bytes.each), call.comm, *state);
}

// What this rank gives goes to its place, packed; what comes goes from scratch, where it does not belong
// together.
int Backend::allgather_packed(const Allgather& call, const GatheredBytes& bytes, CommState& state) {
  auto* const all =
      static_cast<std::byte*>(bytes.out.contiguous ? call.out : state.scratch.reserve(bytes.all));
  if (all == nullptr) return finish(no_room("MPI_Allgather", bytes.all), call.comm, state);
  Status status = pack_own(call, bytes, state, all) ? Status() : cannot_pack();
  if (status.ok()) status = state.communicator->allgather(nullptr, all, bytes.each);
  const auto elements = static_cast<std::size_t>(call.out_count) * static_cast<std::size_t>(state.size);
  if (status.ok() && !bytes.out.contiguous &&
      !packing_.unpack(all, bytes.all, call.out, elements, call.out_type))
    status = cannot_pack();
  state.scratch.relax();
  return finish(status, call.comm, state);
}

bool Backend::pack_own(const Allgather& call, const GatheredBytes& bytes, const CommState& state,
                       std::byte* all) const {
  std::byte* const own = all + static_cast<std::size_t>(state.rank) * bytes.each;
  const auto count = static_cast<std::size_t>(call.out_count);
  if (call.in != MPI_IN_PLACE) {
    return packing_.pack(call.in, static_cast<std::size_t>(call.in_count), call.in_type, own, bytes.given);
  }
  if (bytes.out.contiguous) return true;
  // From MPI_BOTTOM on there is no pointer to this rank's.
  if (call.out == nullptr)
    return packing_.pack(nullptr, count * static_cast<std::size_t>(state.size), call.out_type, all,
                         bytes.all);
  MPI_Aint unused = 0;
  MPI_Aint extent = 0;
  return mpi_.Type_get_extent(call.out_type, &unused, &extent) == MPI_SUCCESS &&
         packing_.pack(static_cast<std::byte*>(call.out) + state.rank * call.out_count * extent, count,
                       call.out_type, own, bytes.each);
}

// By way of images on the host.
int Backend::allgather_anywhere(const Allgather& call) {
  const bool may_be_there =
      call.out_count > 0 && make_ready() && device_buffers_.possible() &&
      (device_buffers_.may_lie_on_gpu(call.in) || device_buffers_.may_lie_on_gpu(call.out));
  const Ranks ranks = may_be_there ? Ranks::of(mpi_, call.comm) : Ranks();
  if (ranks.size == 0) return allgather_on_host(call);
  StagedViews views;
  Allgather seen = call;
  Status status;
  if (call.in != MPI_IN_PLACE && call.in_count > 0) {
    status = device_buffers_.view(const_cast<void*>(call.in), static_cast<std::size_t>(call.in_count),
                                  call.in_type, &views.read);
    if (status.ok()) status = views.read.load();
    seen.in = views.read.buffer();
  }
  if (status.ok() && call.out != MPI_IN_PLACE) {
    const auto count = static_cast<std::size_t>(call.out_count) * static_cast<std::size_t>(ranks.others);
    status = views.view_written(device_buffers_, mpi_, call.out, count, call.out_type);
    if (status.ok() && call.in == MPI_IN_PLACE) status = views.written.load();
    seen.out = views.written.buffer();
  }
  // Nobody would see it, of two images.
  if (status.ok() && call.in == call.out && views.written.beside())
    status = Status(Code::invalid_argument, "both buffers are the same one (MPI_IN_PLACE is for that)");
  if (!status.ok()) return refuse_image(status, "MPI_Allgather", call.comm);
  const int rc = allgather_on_host(seen);
  if (rc != MPI_SUCCESS) return rc;
  status = views.store(mpi_, packing_);
  return status.ok() ? rc : refuse(status, "MPI_Allgather", call.comm);
}

inline int Backend::allgather_unchecked(const Allgather& call) {
  if (device_buffers_.possible()) [[unlikely]]
    return allgather_anywhere(call);
  return allgather_on_host(call);
}

int Backend::allgather(const Allgather& call) try {
  if (checks_.load(std::memory_order_relaxed)) [[unlikely]]
    return allgather_checked(call);
  return allgather_unchecked(call);
} catch (const std::bad_alloc&) {
  return out_of_memory("MPI_Allgather", call.comm);
}

// ---- HEDDLE_CHECK

CollectiveCall Backend::described(const Allgather& call, const CommState& state) {
  GatheredBytes bytes;
  const Reason reason = inspect(call, state, &bytes);
  if (bytes.given != bytes.each) return CollectiveCall::of(CollectiveCall::Kind::allgather_elsewhere);
  switch (reason) {
    case Reason::none:
    case Reason::nothing_to_do:
    case Reason::too_large:
      return CollectiveCall::allgather(bytes.each);
    default:
      return CollectiveCall::of(CollectiveCall::Kind::allgather_elsewhere);
  }
}

int Backend::allgather_checked(const Allgather& call) {
  CommState* const state = comparing(call.comm);
  if (state == nullptr) return allgather_unchecked(call);
  const CollectiveCall described_call = described(call, *state);
  int rc = compare(described_call, "MPI_Allgather", call.comm, *state);
  if (rc != MPI_SUCCESS) return rc;
  const bool repeated = repeats(described_call, MPI_DATATYPE_NULL, MPI_OP_NULL, *state);
  Result<std::vector<std::byte>> mine = std::vector<std::byte>();
  const auto count = static_cast<std::size_t>(call.out_count);
  const auto ranks = static_cast<std::size_t>(state->size);
  // In place it lies within what comes.
  if (repeated && call.in == MPI_IN_PLACE) mine = bytes_of(call.out, count * ranks, call.out_type);
  rc = allgather_unchecked(call);
  if (rc != MPI_SUCCESS || !repeated) return rc;
  if (call.in != MPI_IN_PLACE)
    mine = bytes_of(call.in, static_cast<std::size_t>(call.in_count), call.in_type);
  const Result<std::vector<std::byte>> all = bytes_of(call.out, count * ranks, call.out_type);
  if (!mine.ok() || !all.ok()) return fail(mine.ok() ? all.status() : mine.status(), call.comm, *state);
  const std::size_t each = all.value().size() / ranks;
  const std::byte* const own =
      mine.value().data() + (call.in == MPI_IN_PLACE ? static_cast<std::size_t>(state->rank) * each : 0);
  HostResults host(mpi_, call.comm, state->rank, state->size);
  host.make_room_to_gather(each);
  return repeat("MPI_Allgather", call.comm, *state,
                [&] { return host.allgather(own, all.value().data(), each); });
}

}  // namespace heddle::backend
