// Sparse vectors: the C API.
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "api/arguments.hpp"
#include "api/device_buffers.hpp"
#include "api/error.hpp"
#include "api/handles.hpp"
#include "base/overlap.hpp"
#include "comm/communicator.hpp"
#include "device/device_path.hpp"
#include "heddle/heddle_sparse.h"

namespace heddle::edge {
namespace {

std::size_t entries_of(std::span<const SparseView> parts) {
  std::size_t entries = 0;
  for (const SparseView& part : parts)
    entries += part.count;
  return entries;
}

// The arrays of an input may be those of the output. `copy(to, from, bytes)` knows where those are.
template <typename Copy>
Status copy_out(std::span<const SparseView> parts, void* indices, void* values, const Copy& copy) {
  auto* to_indices = static_cast<std::byte*>(indices);
  auto* to_values = static_cast<std::byte*>(values);
  for (const SparseView& part : parts) {
    const std::size_t index_bytes = part.count * index_size(part.index_type);
    const std::size_t value_bytes = part.count * dtype_size(part.value_type);
    if (part.count == 0) continue;
    HEDDLE_TRY(copy(to_indices, part.indices, index_bytes));
    HEDDLE_TRY(copy(to_values, part.values, value_bytes));
    to_indices += index_bytes;
    to_values += value_bytes;
  }
  return {};
}

Status copy_on_host(void* to, const void* from, std::size_t bytes) {
  std::memmove(to, from, bytes);
  return {};
}

// Makes room in `out`, or says how much is needed.
Status make_room(heddle_sparse& out, std::size_t entries) {
  const bool grown = entries <= out.capacity || out.grow == nullptr || out.grow(&out, entries) == 0;
  out.count = entries;
  if (!grown)
    return Status(Code::out_of_memory,
                  "grow could not make room for " + std::to_string(entries) +
                      " entries of the result; heddle_sparse_fetch has it once there is");
  if (entries > out.capacity)
    return Status(Code::capacity, "the result has " + std::to_string(entries) +
                                      " entries, but there is room for " + std::to_string(out.capacity) +
                                      "; heddle_sparse_fetch has it once there is more");
  if (entries == 0) return {};
  HEDDLE_TRY(check_not_null(out.indices, "out->indices"));
  return check_not_null(out.values, "out->values");
}

Status put(heddle_comm& comm, std::span<const SparseView> parts, heddle_sparse& out) {
  HEDDLE_TRY(make_room(out, entries_of(parts)));
  if (!comm.gpu.present()) return copy_out(parts, out.indices, out.values, copy_on_host);
  return copy_out(parts, out.indices, out.values, [&](void* to, const void* from, std::size_t bytes) {
    return comm.gpu.write(to, from, bytes);
  });
}

// Whether the arrays of `out`, which `grow` may give back, have anything of the input in them.
bool shares_memory(const heddle_sparse& out, const SparseView& in) {
  const std::size_t width[] = {index_size(in.index_type), dtype_size(in.value_type)};
  const void* const inputs[] = {in.indices, in.values};
  const void* const outputs[] = {out.indices, out.values};
  // At least one element: arrays of no capacity may be those of the input all the same. And no more than a
  // result may have, for who has room in plenty may say SIZE_MAX.
  constexpr std::uint64_t kMost = PTRDIFF_MAX / sizeof(std::uint64_t);
  const std::size_t room =
      std::max<std::size_t>(std::min<std::uint64_t>({out.capacity, in.dimension, kMost}), 1);
  for (int o = 0; o < 2; ++o) {
    for (int i = 0; i < 2; ++i) {
      if (outputs[o] != nullptr && overlap(outputs[o], room * width[o], inputs[i], in.count * width[i]))
        return true;
    }
  }
  return false;
}

void keep(heddle_comm& comm, const SparseView& like, std::span<const SparseView> parts) {
  comm.kept.reset();  // whatever becomes of this
  auto kept = std::make_unique<KeptResult>();
  kept->view = like;
  kept->view.count = entries_of(parts);
  kept->indices.resize(kept->view.count * index_size(like.index_type));
  kept->values.resize(kept->view.count * dtype_size(like.value_type));
  (void)copy_out(parts, kept->indices.data(), kept->values.data(), copy_on_host);  // cannot fail
  kept->view.indices = kept->indices.data();
  kept->view.values = kept->values.data();
  comm.kept = std::move(kept);
}

void set_types(heddle_sparse& out, const SparseView& like) {
  out.dimension = like.dimension;
  out.index_type = static_cast<heddle_index_type>(like.index_type);
  out.value_type = static_cast<heddle_dtype>(like.value_type);
}

// An input as the caller passed it, and as the host sees it.
struct Input {
  SparseView given;
  SparseView seen;
};

// A communicator of one rank has nothing but the input, which may be in place already: then nothing is
// copied, and no room needed.
bool is_in_place(std::span<const SparseView> parts, const Input& in, const heddle_sparse& out) {
  return parts.size() == 1 && parts[0].indices == in.seen.indices && parts[0].values == in.seen.values &&
         out.indices == in.given.indices && out.values == in.given.values;
}

// Called inside the communicator, which is no place for what a caller's function throws.
Status take(heddle_comm& comm, const Input& in, std::span<const SparseView> parts, heddle_sparse& out) try {
  set_types(out, in.given);
  if (is_in_place(parts, in, out)) {
    out.count = parts[0].count;
    return {};
  }
  Status status = put(comm, parts, out);
  if (!status.ok()) keep(comm, in.given, parts);
  return status;
} catch (const std::exception& error) {
  return Status(Code::out_of_memory, std::string("the result could not be taken: ") + error.what());
}

// ---- On GPUs

// What they have merged, as take() does it: from where it lies to wherever `out` has room.
Status take_merged(heddle_comm& comm, const SparseView& like, const DeviceMerged& merged,
                   heddle_sparse& out) try {
  set_types(out, like);
  out.count = merged.entries.count;
  if (merged.is_placed) return {};
  SparseView view = like;
  view.count = merged.entries.count;
  view.indices = merged.entries.indices;
  view.values = merged.entries.values;
  DevicePath& path = *comm.communicator->device_path();
  const auto copy = [&](void* to, const void* from, std::size_t bytes) -> Status {
    const Result<bool> copied = path.copy(to, from, bytes);
    if (!copied.ok() || copied.value()) return copied.status();
    Result<gpu::Image> image = comm.gpu.image(from, bytes);
    if (!image.ok()) return image.status();
    HEDDLE_TRY(image->load());
    return comm.gpu.write(to, image->host(), bytes);
  };
  Status status = make_room(out, view.count);
  if (status.ok()) status = copy_out(std::span(&view, 1), out.indices, out.values, copy);
  if (status.ok()) return status;
  SparseImages images;
  HEDDLE_TRY(images.load(comm, &view));
  keep(comm, like, std::span(&view, 1));
  return status;
} catch (const std::exception& error) {
  return Status(Code::out_of_memory, std::string("the result could not be taken: ") + error.what());
}

// Whether the GPUs have served it.
Result<bool> merge_on_gpus(heddle_comm& comm, DevicePath& path, const SparseJob& job, heddle_sparse& out) {
  const SparseView& in = job.in;
  const bool wide = in.index_type == IndexType::u64;
  DeviceTraffic traffic;
  DeviceMerged merged;
  const Result<bool> served = path.sparse_merge({{in.indices, in.values, in.count, wide},
                                                 in.value_type,
                                                 job.op,
                                                 in.dimension,
                                                 {out.indices, out.values, out.capacity, wide}},
                                                agreement_number(job), &traffic, &merged);
  if (!served.ok() || !served.value()) return served;
  comm.communicator->note_sparse_stats({"gpu", traffic.entries, merged.entries.count, traffic.bytes_sent});
  HEDDLE_TRY(take_merged(comm, in, merged, out));
  return true;
}

// Neither where the driver cannot tell.
enum class Where { host, gpu };
bool lies(heddle_comm& comm, const void* memory, Where where) {
  if (!comm.gpu.present()) return where == Where::host;
  const Result<gpu::Place> place = comm.gpu.place(memory);
  return place.ok() && gpu::needs_image(place->kind) == (where == Where::gpu);
}

// Where the result can be written straight. Where not, take() says why.
SparseRoom room_in(heddle_comm& comm, heddle_sparse& out, const SparseView& in, std::size_t entries) try {
  if (shares_memory(out, in) || (entries > out.capacity && out.grow == nullptr)) return {};
  set_types(out, in);
  if (entries > out.capacity && out.grow(&out, entries) != 0) return {};
  if (entries > out.capacity || out.indices == nullptr || out.values == nullptr) return {};
  if (!lies(comm, out.indices, Where::host) || !lies(comm, out.values, Where::host)) return {};
  return {out.indices, out.values};
} catch (const std::exception&) {
  return {};  // the others wait
}

// But for what images are wanted for.
Status check_job(const heddle_sparse* in, heddle_sparse* out, const heddle_op& op, SparseJob* job) {
  HEDDLE_TRY(check_vector(in, "in", &job->in));
  HEDDLE_TRY(check_not_null(out, "out"));
  return check_sparse_op(op, &job->op);
}

Status check_dense_job(const heddle_sparse* in, void* dense, const heddle_op& op, SparseJob* job) {
  HEDDLE_TRY(check_vector(in, "in", &job->in));
  HEDDLE_TRY(check_sparse_op(op, &job->op));
  return check_dense(dense, dtype_size(job->in.value_type), job->in);
}

// Of a rank that has passed what no call takes: it meets the others all the same, so that they hear of it
// instead of waiting.
Status tell_all_of_sparse(heddle_comm& comm, Status trouble) {
  DevicePath* const path = comm.communicator->device_path();
  DeviceTraffic none;
  if (path != nullptr && !path->sparse_sum({{}, DType::f32, Op::sum, nullptr, 0}, 0, &none).ok())
    return trouble;
  return withdraw_from_sparse(comm, std::move(trouble));
}

// Of one that has passed the checks. `images` outlive it, and are to be loaded before it starts.
Status finish_job(heddle_sparse* out, heddle_comm_t comm, SparseImages& images, SparseJob* job) {
  Input input = {job->in, {}};
  HEDDLE_TRY(images.place(*comm, &job->in));
  input.seen = job->in;
  job->deliver = [comm, input, out](std::span<const SparseView> parts) {
    return take(*comm, input, parts, *out);
  };
  job->room = [comm, like = input.given, out](std::size_t entries) {
    return room_in(*comm, *out, like, entries);
  };
  return {};
}

// By the GPUs where the ranks have agreed on it, or else by images.
Status allreduce_sparse(const heddle_sparse* in, heddle_sparse* out, const heddle_op& op,
                        heddle_comm_t comm) {
  SparseJob job;
  if (Status checked = check_job(in, out, op, &job); !checked.ok()) return tell_all_of_sparse(*comm, checked);
  DevicePath* const path = comm->communicator->device_path();
  const bool is_for_gpus = path != nullptr && job.in.dimension > 0;
  if (path != nullptr) {
    const Result<bool> served = merge_on_gpus(*comm, *path, job, *out);
    if (!served.ok() || served.value()) return served.status();
  }
  const SparseView given = job.in;
  SparseImages images;
  Status seen = finish_job(out, comm, images, &job);
  if (seen.ok()) seen = images.load();
  if (!seen.ok()) return withdraw_from_sparse(*comm, std::move(seen));
  if (!is_for_gpus) return comm->communicator->sparse_allreduce(job);
  // What becomes of a rank's own result is no affair of the others, who go on to what ends the call.
  Status taken;
  job.deliver = [&taken, deliver = job.deliver](std::span<const SparseView> parts) {
    taken = deliver(parts);
    return Status();
  };
  HEDDLE_TRY(comm->communicator->sparse_allreduce(job));
  const bool in_on_gpu =
      given.count == 0 || (job.in.indices != given.indices && job.in.values != given.values);
  const bool on_gpu =
      in_on_gpu && lies(*comm, out->indices, Where::gpu) && lies(*comm, out->values, Where::gpu);
  HEDDLE_TRY(path->after_sum(comm->gpu, out->indices, on_gpu));
  return taken;
}

Status open_sparse(const heddle_sparse* in, heddle_sparse* out, const heddle_op& op, heddle_comm_t comm,
                   Life life, heddle_request_t* request) {
  HEDDLE_TRY(check_request_call(comm, request));
  SparseJob job;
  HEDDLE_TRY(check_job(in, out, op, &job));
  // From its second start on the request would read what the first has made of them.
  if (life == Life::persistent && (out == in || shares_memory(*out, job.in)))
    return Status(Code::invalid_argument,
                  "out shares memory with in, which a persistent request reads again at every start; give "
                  "out arrays of its own");
  SparseImages images;
  Status placed = finish_job(out, comm, images, &job);
  if (!placed.ok()) return life == Life::once ? heard_of(*comm, std::move(placed)) : placed;
  job.keeps_pattern = life == Life::persistent;
  Result<std::unique_ptr<Request>> made = comm->communicator->sparse_allreduce_request(std::move(job));
  if (made.ok() && images.beside())
    made = std::unique_ptr<Request>(
        std::make_unique<SparseImageRequest>(std::move(images), std::move(made).value()));
  return hand_out(*comm, std::move(made), life, request);
}

}  // namespace
}  // namespace heddle::edge

using heddle::Code;
using heddle::CollectiveCall;
using heddle::SparseJob;
using heddle::SparseView;
using heddle::Status;
namespace edge = heddle::edge;

heddle_status heddle_sparse_sort(heddle_sparse* vector) {
  return edge::guarded([&]() -> Status {
    SparseView view;
    HEDDLE_TRY(edge::check_vector(vector, "vector", &view));
    return heddle::sort_sparse(view.dimension, view.index_type, vector->indices, view.value_type,
                               vector->values, &vector->count);
  });
}

heddle_status heddle_sparse_check(const heddle_sparse* vector) {
  return edge::guarded([&]() -> Status {
    SparseView view;
    HEDDLE_TRY(edge::check_vector(vector, "vector", &view));
    return heddle::check_sparse(view);
  });
}

heddle_status heddle_sparse_allreduce(const heddle_sparse* in, heddle_sparse* out, heddle_op op,
                                      heddle_comm_t comm) {
  return edge::guarded([&]() -> Status {
    HEDDLE_TRY(edge::check(comm));
    const edge::OneCall call(*comm);
    return edge::in_steps(*comm, [&]() -> Status {
      HEDDLE_TRY(edge::agree(call, CollectiveCall::Kind::sparse_allreduce));
      return edge::allreduce_sparse(in, out, op, comm);
    });
  });
}

heddle_status heddle_sparse_fetch(heddle_sparse* out, heddle_comm_t comm) {
  return edge::guarded([&]() -> Status {
    HEDDLE_TRY(edge::check(comm));
    HEDDLE_TRY(edge::check_not_null(out, "out"));
    if (!comm->kept)
      return Status(Code::invalid_argument, "no sparse result of this communicator waits to be fetched");
    edge::set_types(*out, comm->kept->view);
    const SparseView parts[] = {comm->kept->view};
    HEDDLE_TRY(edge::put(*comm, parts, *out));
    comm->kept.reset();
    return {};
  });
}

heddle_status heddle_sparse_allreduce_dense(const heddle_sparse* in, void* dense, heddle_op op,
                                            heddle_comm_t comm) {
  return edge::guarded([&]() -> Status {
    SparseJob job;
    HEDDLE_TRY(edge::check(comm));
    const edge::OneCall call(*comm);
    return edge::in_steps(*comm, [&]() -> Status {
      HEDDLE_TRY(edge::agree(call, CollectiveCall::Kind::sparse_allreduce_dense));
      if (Status checked = edge::check_dense_job(in, dense, op, &job); !checked.ok())
        return edge::tell_all_of_sparse(*comm, checked);
      job.dense = dense;
      return edge::sparse_to_dense_anywhere(*comm, job);
    });
  });
}

heddle_status heddle_sparse_allreduce_in_place(void* buffer, size_t count, heddle_dtype dtype,
                                               heddle_comm_t comm) {
  return edge::guarded([&]() -> Status {
    HEDDLE_TRY(edge::check(comm));
    edge::Reduction r;
    const edge::OneCall call(*comm);
    return edge::in_steps(*comm, [&]() -> Status {
      HEDDLE_TRY(edge::agree(call, edge::check_in_place(buffer, count, dtype, &r), [] {
        return CollectiveCall::of(CollectiveCall::Kind::sparse_allreduce_in_place);
      }));
      return edge::mostly_zero_anywhere(*comm, r);
    });
  });
}

heddle_status heddle_isparse_allreduce(const heddle_sparse* in, heddle_sparse* out, heddle_op op,
                                       heddle_comm_t comm, heddle_request_t* request) {
  return edge::guarded([&] { return edge::open_sparse(in, out, op, comm, edge::Life::once, request); });
}

heddle_status heddle_sparse_allreduce_init(const heddle_sparse* in, heddle_sparse* out, heddle_op op,
                                           heddle_comm_t comm, heddle_request_t* request) {
  return edge::guarded([&] { return edge::open_sparse(in, out, op, comm, edge::Life::persistent, request); });
}

heddle_status heddle_sparse_get_stats(heddle_comm_t comm, heddle_sparse_stats* stats) {
  return edge::guarded([&]() -> Status {
    HEDDLE_TRY(edge::check(comm));
    HEDDLE_TRY(edge::check_not_null(stats, "stats"));
    const heddle::SparseStats& s = comm->communicator->sparse_stats();
    *stats = {s.algorithm, s.entries, s.result_entries, s.bytes_sent};
    return {};
  });
}
