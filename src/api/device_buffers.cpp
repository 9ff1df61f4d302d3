#include "api/device_buffers.hpp"

#include "comm/local_compressed.hpp"
#include "device/device_path.hpp"
#include "device/local_gpu.hpp"
#include "device/nodes_path.hpp"

namespace heddle::edge {

namespace {

// Whether calls begin with a meeting of the ranks.
bool meets_first(const DevicePath* path, const NodesPath* nodes) {
  return (path != nullptr && path->on()) || (nodes != nullptr && nodes->on());
}

// What came of a call on images; `met`: this rank's could be read. Where that failed, and not for a mistake
// or want of memory, it will again, and the others would take this rank's next call for this one.
Status outcome(heddle_comm& comm, bool met, Status status) {
  if (!met && status.code() == Code::system) comm.communicator->give_up(status);
  return status;
}

// By the GPUs where the ranks have agreed on it, or else by images. `begun`: as in until_begun().
Status sum_anywhere(heddle_comm& comm, const Reduction& r, bool& begun) {
  DevicePath* const path = comm.communicator->device_path();
  NodesPath* const nodes = comm.communicator->nodes_path();
  begun = meets_first(path, nodes);
  Result<bool> served = false;
  if (path != nullptr) served = path->allreduce(r.in, r.out, r.count, r.type, r.op);
  if (nodes != nullptr) served = nodes->allreduce(r.in, r.out, r.count, r.type, r.op);
  if (!served.ok() || served.value()) return served.status();
  const std::size_t bytes = r.count * dtype_size(r.type);
  bool met = false;
  Status done = with_images(comm, r.in, r.out, bytes, [&](const void* in, void* out) {
    met = true;
    HEDDLE_TRY(comm.communicator->allreduce(in, out, r.count, r.type, r.op));
    begun = true;
    if (nodes != nullptr) return nodes->after_staged(comm.gpu, r.out, bytes, out != r.out && in != r.in);
    // Nothing to sum is nothing to wait for.
    if (path == nullptr || r.count == 0) return Status();
    // An image is not where the buffer is.
    return path->after_sum(comm.gpu, r.out, out != r.out && in != r.in);
  });
  return outcome(comm, met, std::move(done));
}

Status copy_anywhere(heddle_comm& comm, void* buffer, std::size_t bytes, int root, bool& begun) {
  DevicePath* const path = comm.communicator->device_path();
  NodesPath* const nodes = comm.communicator->nodes_path();
  begun = meets_first(path, nodes);
  Result<bool> served = false;
  if (path != nullptr) served = path->bcast(buffer, bytes, root);
  if (nodes != nullptr) served = nodes->bcast(buffer, bytes, root);
  if (!served.ok() || served.value()) return served.status();
  bool met = false;
  Status done = with_image(comm, buffer, bytes, access_of(comm, root), [&](void* at) {
    met = true;
    HEDDLE_TRY(comm.communicator->bcast(at, bytes, root));
    begun = true;
    if (nodes != nullptr) return nodes->after_staged(comm.gpu, buffer, bytes, at != buffer);
    return path != nullptr ? path->after_bcast(comm.gpu, buffer, at != buffer) : Status();
  });
  return outcome(comm, met, std::move(done));
}

}  // namespace

Status allreduce_anywhere(heddle_comm& comm, const Reduction& reduction) {
  return until_begun(comm, [&](bool& begun) { return sum_anywhere(comm, reduction, begun); });
}

Status bcast_anywhere(heddle_comm& comm, void* buffer, std::size_t bytes, int root) {
  return until_begun(comm, [&](bool& begun) { return copy_anywhere(comm, buffer, bytes, root, begun); });
}

Status reduce_anywhere(heddle_comm& comm, const Reduction& r, int root) {
  const std::size_t bytes = r.count * dtype_size(r.type);
  return until_begun(comm, [&](bool& begun) {
    bool met = false;
    const auto reduce = [&](const void* in, void* out) {
      met = true;
      Status done = comm.communicator->reduce(in, out, r.count, r.type, r.op, root);
      begun = done.ok();
      return done;
    };
    Status done = r.out != nullptr ? with_images(comm, r.in, r.out, bytes, reduce)
                                   : with_image(comm, r.in, bytes, Access::read,
                                                [&](const void* in) { return reduce(in, nullptr); });
    return outcome(comm, met, std::move(done));
  });
}

Status allgather_anywhere(heddle_comm& comm, const void* in, void* out, std::size_t bytes) {
  const std::size_t in_all = bytes * static_cast<std::size_t>(comm.communicator->size());
  return until_begun(comm, [&](bool& begun) {
    bool met = false;
    const auto gather = [&](const void* from, void* to) {
      met = true;
      Status done = comm.communicator->allgather(from, to, bytes);
      begun = done.ok();
      return done;
    };
    const auto into = [&](const void* from, Access access) {
      return with_image(comm, out, in_all, access, [&](void* to) { return gather(from, to); });
    };
    Status done = in == nullptr ? into(nullptr, Access::both)
                                : with_image(comm, in, bytes, Access::read,
                                             [&](const void* from) { return into(from, Access::write); });
    return outcome(comm, met, std::move(done));
  });
}

Status withdraw_from_sparse(heddle_comm& comm, Status trouble) {
  SparseJob job;
  job.trouble = std::move(trouble);
  return comm.communicator->sparse_allreduce(job);
}

namespace {

// `path`: of what the GPUs could have done; else null.
Status staged_sparse(heddle_comm& comm, SparseJob job, DevicePath* path) {
  const SparseView given = job.in;
  void* const dense = job.dense;
  SparseImages images;
  if (Status seen = images.load(comm, &job.in); !seen.ok())
    return withdraw_from_sparse(comm, std::move(seen));
  const bool in_on_gpu =
      given.count == 0 || (job.in.indices != given.indices && job.in.values != given.values);
  LocalGpu& local = comm.communicator->local_gpu();
  const auto there = local.vector(comm.gpu, dense, job.in.dimension, job.in.value_type);
  job.there = there.get();
  bool met = false;
  const auto sum = [&](void* out) -> Status {
    met = true;
    job.dense = out;
    HEDDLE_TRY(comm.communicator->sparse_allreduce(job));
    if (path != nullptr) HEDDLE_TRY(path->after_sum(comm.gpu, dense, in_on_gpu && out != dense));
    return there != nullptr ? there->outcome() : Status();
  };
  const std::size_t bytes = job.in.dimension * dtype_size(job.in.value_type);
  Status done = there != nullptr ? sum(nullptr) : with_image(comm, dense, bytes, Access::write, sum);
  return met ? done : withdraw_from_sparse(comm, std::move(done));
}

void note_served(heddle_comm& comm, const DeviceTraffic& traffic) {
  comm.communicator->note_sparse_stats({"gpu", traffic.entries, 0, traffic.bytes_sent});
}

}  // namespace

Status sparse_to_dense_anywhere(heddle_comm& comm, const SparseJob& job) {
  DevicePath* const path = comm.communicator->device_path();
  const SparseView& in = job.in;
  const DeviceEntries entries{{in.indices, in.values, in.count, in.index_type == IndexType::u64},
                              in.value_type,
                              job.op,
                              job.dense,
                              in.dimension};
  if (path != nullptr) {
    DeviceTraffic traffic;
    const Result<bool> served = path->sparse_sum(entries, agreement_number(job), &traffic);
    if (!served.ok()) return served.status();
    if (served.value()) {
      note_served(comm, traffic);
      return {};
    }
  }
  return staged_sparse(comm, job, entries.is_for_gpus() ? path : nullptr);
}

// In place. GPUs of a node sum the whole vector in less time than it takes to find its entries.
Status mostly_zero_anywhere(heddle_comm& comm, const Reduction& r) {
  DevicePath* const path = comm.communicator->device_path();
  if (path != nullptr) {
    const Result<bool> served = path->allreduce(r.in, r.out, r.count, r.type, r.op);
    if (!served.ok()) return served.status();
    if (served.value()) {
      comm.communicator->note_sparse_stats({"dense", 0, 0, 0});
      return {};
    }
  }
  const auto there = comm.communicator->local_gpu().vector(comm.gpu, r.out, r.count, r.type);
  if (there != nullptr) {
    HEDDLE_TRY(comm.communicator->mostly_zero_allreduce(
        {nullptr, nullptr, r.count, r.type, there.get(), there.get()}));
    if (path != nullptr) HEDDLE_TRY(path->after_sum(comm.gpu, r.out, true));
    return there->outcome();
  }
  bool met = false;
  Status done = with_images(comm, r.in, r.out, r.count * dtype_size(r.type), [&](const void* in, void* out) {
    met = true;
    HEDDLE_TRY(comm.communicator->mostly_zero_allreduce({in, out, r.count, r.type}));
    if (path == nullptr || r.count == 0) return Status();
    return path->after_sum(comm.gpu, r.out, out != r.out && in != r.in);
  });
  if (met) return done;
  // The host cannot see the vector: the others hear of it instead of waiting.
  return comm.communicator->mostly_zero_allreduce(
      {nullptr, nullptr, r.count, r.type, nullptr, nullptr, std::move(done)});
}

Status compressed_anywhere(heddle_comm& comm, const CompressedJob& job, PlacedResidual* residual) {
  DevicePath* const path = comm.communicator->device_path();
  const bool is_coded = job.how.method == Compression::Method::codec;
  const DeviceLargest largest{job.in, job.out, job.count, largest_wanted(job), residual};
  DeviceCoded coded{job.in, job.out, job.count, job.how.codec, residual};
  coded.how.seed = comm.communicator->codec_seed(job.how.codec.seed);
  if (path != nullptr) {
    DeviceTraffic traffic;
    const Result<bool> served = is_coded ? path->coded_sum(coded, agreement_number(job), &traffic)
                                         : path->largest_sum(largest, agreement_number(job), &traffic);
    // One that failed, on all ranks, is not to be drawn for again.
    if (!served.ok() || served.value()) comm.communicator->note_compressed();
    if (!served.ok()) return served.status();
    if (served.value()) {
      note_served(comm, traffic);
      return {};
    }
  }
  const bool is_for_gpus = is_coded ? coded.is_for_gpus() : largest.is_for_gpus();
  return compressed_allreduce_anywhere(comm.gpu, *comm.communicator, job, residual, [&](bool on_gpu) {
    return path != nullptr && is_for_gpus ? path->after_sum(comm.gpu, job.out, on_gpu) : Status();
  });
}

Status SparseImages::place(heddle_comm& comm, SparseView* view) {
  // A count that nobody set would take memory: it is refused before an entry is read.
  if (!comm.gpu.present() || view->count > view->dimension) return {};
  Result<gpu::Image> indices = comm.gpu.image(view->indices, view->count * index_size(view->index_type));
  if (!indices.ok()) return indices.status();
  Result<gpu::Image> values = comm.gpu.image(view->values, view->count * dtype_size(view->value_type));
  if (!values.ok()) return values.status();
  indices_ = std::move(indices).value();
  values_ = std::move(values).value();
  view->indices = indices_.host();
  view->values = values_.host();
  return {};
}

Status SparseImages::load() {
  HEDDLE_TRY(indices_.load());
  return values_.load();
}

Status SparseImages::load(heddle_comm& comm, SparseView* view) {
  HEDDLE_TRY(place(comm, view));
  return load();
}

Status ImageRequest::start() {
  HEDDLE_TRY(in_.load());
  if (access_ == Access::read || access_ == Access::both) HEDDLE_TRY(out_.load());
  HEDDLE_TRY(request_->start());
  under_way_ = true;
  return {};
}

Status ImageRequest::test(bool* done) {
  Status status = request_->test(done);
  if (!status.ok()) under_way_ = false;
  return status.ok() && *done ? finish() : status;
}

Status ImageRequest::wait() {
  Status status = request_->wait();
  if (!status.ok()) under_way_ = false;
  return status.ok() ? finish() : status;
}

Status ImageRequest::finish() {
  if (!under_way_) return {};
  under_way_ = false;
  return access_ == Access::write || access_ == Access::both ? out_.store() : Status();
}

}  // namespace heddle::edge
