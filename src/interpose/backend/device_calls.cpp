// Calls that may go by the ranks' GPUs (comm/device_path.hpp): what of MPI's arguments the ranks are sure to have in common decides whether a
// call is one of those, as for calls that go by the host.
#include "comm/device_path.hpp"
#include "comm/nodes_path.hpp"
#include "interpose/backend/backend.hpp"

namespace heddle::backend {

// Null where there is none: what heddle does not serve is nobody's to agree on.
DevicePath* Backend::device_path(MPI_Comm comm) {
  const CommState* state = served(comm);
  return state != nullptr ? state->communicator->device_path() : nullptr;
}

NodesPath* Backend::nodes_path(MPI_Comm comm) {
  const CommState* state = served(comm);
  return state != nullptr ? state->communicator->nodes_path() : nullptr;
}

// False where heddle leaves the call to the host.
bool Backend::is_served(const void* in, const void* out, MPI_Datatype type, MPI_Op op, DType* mapped_type,
                        Op* mapped_op) {
  const TypeRow* row = map_->find(type, op, mapped_op);
  if (row == nullptr || in == nullptr || out == nullptr || in == out) return false;
  *mapped_type = row->type;
  return true;
}

bool Backend::is_served(const void* buffer, std::size_t count, MPI_Datatype type, int root,
                        const CommState& state, void** piece, std::size_t* bytes) const {
  Packing::Layout layout;
  if (root < 0 || root >= state.size || !packing_.inspect(buffer, type, &layout)) return false;
  if (__builtin_mul_overflow(count, layout.element_bytes, bytes) || *bytes == 0 ||
      *bytes > packing_.most_bytes())
    return false;
  *piece = layout.contiguous ? const_cast<void*>(buffer) : nullptr;
  return true;
}

Result<bool> Backend::allreduce_on_gpus(const void* in, void* out, std::size_t count, MPI_Datatype type,
                                        MPI_Op op, MPI_Comm comm) {
  DevicePath* const path = device_path(comm);
  NodesPath* const nodes = nodes_path(comm);
  const bool on = (path != nullptr && path->on()) || (nodes != nullptr && nodes->on());
  DType mapped_type{};
  Op mapped_op{};
  if (!on || !is_served(in, out, type, op, &mapped_type, &mapped_op)) return false;
  const void* const from = in == MPI_IN_PLACE ? out : in;
  if (path != nullptr) return path->allreduce(from, out, count, mapped_type, mapped_op);
  // Who asked for fewer bytes between nodes gets that.
  const Savings* const savings = served(comm)->savings.get();
  if (savings != nullptr && savings->loses(mapped_type, mapped_op, count * dtype_size(mapped_type)))
    return false;
  return nodes->allreduce(from, out, count, mapped_type, mapped_op);
}

Result<bool> Backend::bcast_on_gpus(void* buffer, std::size_t count, MPI_Datatype type, int root,
                                    MPI_Comm comm) {
  DevicePath* const path = device_path(comm);
  NodesPath* const nodes = nodes_path(comm);
  const bool on = (path != nullptr && path->on()) || (nodes != nullptr && nodes->on());
  void* piece = nullptr;
  std::size_t bytes = 0;
  if (!on || !is_served(buffer, count, type, root, *served(comm), &piece, &bytes)) return false;
  return path != nullptr ? path->bcast(piece, bytes, root) : nodes->bcast(piece, bytes, root);
}

Status Backend::after_allreduce(const void* in, void* out, std::size_t count, bool on_gpu, MPI_Datatype type,
                                MPI_Op op, MPI_Comm comm) {
  DevicePath* const path = device_path(comm);
  NodesPath* const nodes = nodes_path(comm);
  DType mapped_type{};
  Op mapped_op{};
  if ((path == nullptr && nodes == nullptr) || !is_served(in, out, type, op, &mapped_type, &mapped_op))
    return {};
  if (path != nullptr) return path->after_allreduce(device_buffers_.gpu(), out, on_gpu);
  return nodes->after_staged(device_buffers_.gpu(), out, count * dtype_size(mapped_type), on_gpu);
}

Status Backend::after_bcast(void* buffer, bool on_gpu, std::size_t count, MPI_Datatype type, int root,
                            MPI_Comm comm) {
  DevicePath* const path = device_path(comm);
  NodesPath* const nodes = nodes_path(comm);
  void* piece = nullptr;
  std::size_t bytes = 0;
  if ((path == nullptr && nodes == nullptr) ||
      !is_served(buffer, count, type, root, *served(comm), &piece, &bytes))
    return {};
  const bool whole = on_gpu && piece != nullptr;
  return path != nullptr ? path->after_bcast(device_buffers_.gpu(), buffer, whole)
                         : nodes->after_staged(device_buffers_.gpu(), buffer, bytes, whole);
}

}  // namespace heddle::backend
