// Calls that may go by the ranks' GPUs (device/device_path.hpp): what of MPI's arguments the ranks are sure
// to have in common decides whether a call is one of those, as for calls that go by the host.
#include "device/device_path.hpp"
#include "device/local_gpu.hpp"
#include "device/nodes_path.hpp"
#include "interpose/backend/backend.hpp"

namespace heddle::backend {

// Null where heddle does not serve the communicator: nobody agrees on anything then. Other ranks must find
// the same, so a state is also found where another communicator, on this rank alone perhaps, keeps it from
// being found fast.
CommState* Backend::served_anywhere(MPI_Comm comm) {
  CommState* state = registry_.find_fast(comm);
  if (state == nullptr) state = registry_.find(comm);
  return state != nullptr && state->mode == Mode::heddle ? state : nullptr;
}

DevicePath* Backend::device_path(MPI_Comm comm) {
  const CommState* state = served_anywhere(comm);
  return state != nullptr ? state->communicator->device_path() : nullptr;
}

NodesPath* Backend::nodes_path(MPI_Comm comm) {
  const CommState* state = served_anywhere(comm);
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
  if (layout.contiguous && buffer == nullptr) return false;
  if (__builtin_mul_overflow(count, layout.element_bytes, bytes) || *bytes == 0 ||
      *bytes > packing_.most_bytes())
    return false;
  *piece = layout.contiguous ? const_cast<void*>(buffer) : nullptr;
  return true;
}

// Whether to look, and what the hosts exchange then, is the same wherever the ranks' vectors lie, and on
// ranks without CUDA (allreduce_saving()).
Result<bool> Backend::allreduce_by_entries(StagedSum& sum, MPI_Op op, MPI_Comm comm, bool* asked) {
  CommState* const state = served_anywhere(comm);
  DType type{};
  Op mapped_op{};
  if (state == nullptr || state->savings == nullptr ||
      !is_served(sum.in(), sum.out(), sum.type(), op, &type, &mapped_op) ||
      !state->savings->looks(type, mapped_op, sum.count() * dtype_size(type)))
    return false;
  *asked = true;
  return state->savings->wants_look(sum.count()) ? sum_entries(sum, type, *state) : Result<bool>(false);
}

// Each vector by itself lies in the host's memory, or is for the GPU there, or gets an image.
Result<bool> Backend::sum_entries(StagedSum& sum, DType type, CommState& state) {
  LocalGpu& local = state.communicator->local_gpu();
  gpu::Gpu& gpu = device_buffers_.gpu();
  const auto there = local.vector(gpu, sum.out(), sum.count(), type);
  const auto apart =
      sum.in_place() ? nullptr : local.vector(gpu, const_cast<void*>(sum.in()), sum.count(), type);
  MostlyZeroJob job;
  job.count = sum.count();
  job.type = type;
  job.there = there.get();
  job.from = sum.in_place() ? there.get() : apart.get();
  if (job.there == nullptr) {
    job.trouble = sum.load_output();
    job.out = sum.output();
  }
  if (job.from == nullptr && job.trouble.ok()) {
    job.trouble = sum.load_input();
    job.in = sum.in_place() ? sum.output() : sum.input();
  }
  const Result<bool> served = state.savings->by_entries(job);
  if (!served.ok() || !served.value()) return served;
  HEDDLE_TRY(there != nullptr ? there->outcome() : sum.store());
  return true;
}

// What the hosts exchange is the same on ranks that compress without this (allreduce_saving()).
Result<bool> Backend::allreduce_losing(const StagedSum& sum, MPI_Op op, MPI_Comm comm) {
  CommState* const state = served_anywhere(comm);
  DType type{};
  Op mapped_op{};
  if (state == nullptr || state->savings == nullptr ||
      !is_served(sum.in(), sum.out(), sum.type(), op, &type, &mapped_op) || type != DType::f32 ||
      !state->savings->loses(type, mapped_op, sum.count() * sizeof(float)))
    return false;
  HEDDLE_TRY(state->savings->compress_anywhere(
      device_buffers_.gpu(), static_cast<const float*>(sum.source()), static_cast<float*>(sum.out()),
      sum.count(), sum.source(), [&](bool on_gpu) {
        return after_allreduce(sum.in(), sum.out(), sum.count(), on_gpu, sum.type(), op, comm);
      }));
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
  const Savings* const savings = served_anywhere(comm)->savings.get();
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
  if (!on || !is_served(buffer, count, type, root, *served_anywhere(comm), &piece, &bytes)) return false;
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
  if (path != nullptr) return path->after_sum(device_buffers_.gpu(), out, on_gpu);
  return nodes->after_staged(device_buffers_.gpu(), out, count * dtype_size(mapped_type), on_gpu);
}

Status Backend::after_bcast(void* buffer, bool on_gpu, std::size_t count, MPI_Datatype type, int root,
                            MPI_Comm comm) {
  DevicePath* const path = device_path(comm);
  NodesPath* const nodes = nodes_path(comm);
  void* piece = nullptr;
  std::size_t bytes = 0;
  if ((path == nullptr && nodes == nullptr) ||
      !is_served(buffer, count, type, root, *served_anywhere(comm), &piece, &bytes))
    return {};
  const bool whole = on_gpu && piece != nullptr;
  return path != nullptr ? path->after_bcast(device_buffers_.gpu(), buffer, whole)
                         : nodes->after_staged(device_buffers_.gpu(), buffer, bytes, whole);
}

}  // namespace heddle::backend
