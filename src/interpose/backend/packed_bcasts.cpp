// MPI_Bcast of derived datatypes.
#include <utility>

#include "interpose/backend/backend.hpp"
#include "interpose/backend/blocks.hpp"
#include "interpose/backend/packed_views.hpp"

namespace heddle::backend {
namespace {

// To ask for a list of blocks takes longer than to have the host pack fewer bytes.
constexpr std::size_t kBlocksFrom = std::size_t{16} << 10;

}  // namespace

int Backend::bcast_packed(void* buffer, std::size_t count, MPI_Datatype type, std::size_t bytes, int root,
                          MPI_Comm comm, CommState& state) {
  const auto finished = [&](const Status& status) {
    state.scratch.relax();
    return finish(status, comm, state);
  };
  if (const auto loops = packing_.loops_of(buffer, count, type);
      loops.has_value() && loops->bytes() == bytes) {
    StridedView view(buffer, *loops);
    return finished(bcast_view(view, true, bytes, root, state));
  }
  MPI_Aint unused = 0;
  MPI_Aint extent = 0;
  // From MPI_BOTTOM on there is no pointer to a second element.
  const bool in_parts = buffer != nullptr && mpi_.Type_get_extent(type, &unused, &extent) == MPI_SUCCESS;
  if (in_parts && bytes >= kBlocksFrom) {
    if (auto blocks = packing_.blocks_of(type); blocks.has_value() && blocks->bytes() == bytes / count) {
      BlocksView view(buffer, std::move(*blocks), extent);
      return finished(bcast_view(view, true, bytes, root, state));
    }
  }
  ElementsView view(packing_, buffer, type, bytes / count, extent, state.scratch);
  return finished(bcast_view(view, in_parts, bytes, root, state));
}

// `in_parts`: the view may be read so. Otherwise, and where its parts are of no use, by way of scratch.
Status Backend::bcast_view(PackedView& view, bool in_parts, std::size_t bytes, int root, CommState& state) {
  if (in_parts) {
    const Result<bool> served = state.communicator->bcast_view(view, bytes, root);
    if (!served.ok() || served.value()) return served.status();
  }
  auto* const packed = static_cast<std::byte*>(state.scratch.reserve(bytes));
  if (packed == nullptr) return no_room("MPI_Bcast", bytes);
  const bool is_root = state.rank == root;
  if (is_root && !view.read(0, bytes, packed)) return view.status();
  HEDDLE_TRY(state.communicator->bcast(packed, bytes, root));
  return is_root || view.write(0, bytes, packed) ? Status() : view.status();
}

}  // namespace heddle::backend
