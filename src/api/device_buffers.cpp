#include "api/device_buffers.hpp"

#include "comm/device_path.hpp"

namespace heddle::edge {

// By the GPUs where the ranks have agreed on it, or else by images.
Status allreduce_anywhere(heddle_comm& comm, const Reduction& r) {
  DevicePath* const path = comm.communicator->device_path();
  if (path != nullptr) {
    const Result<bool> served = path->allreduce(r.in, r.out, r.count, r.type, r.op);
    if (!served.ok() || served.value()) return served.status();
  }
  return with_images(comm, r.in, r.out, r.count * dtype_size(r.type), [&](const void* in, void* out) {
    HEDDLE_TRY(comm.communicator->allreduce(in, out, r.count, r.type, r.op));
    // Nothing to sum is nothing to wait for.
    if (path == nullptr || r.count == 0) return Status();
    // An image is not where the buffer is.
    return path->after_allreduce(comm.gpu, r.out, out != r.out && in != r.in);
  });
}

Status bcast_anywhere(heddle_comm& comm, void* buffer, std::size_t bytes, int root) {
  DevicePath* const path = comm.communicator->device_path();
  if (path != nullptr) {
    const Result<bool> served = path->bcast(buffer, bytes, root);
    if (!served.ok() || served.value()) return served.status();
  }
  return with_image(comm, buffer, bytes, access_of(comm, root), [&](void* at) {
    HEDDLE_TRY(comm.communicator->bcast(at, bytes, root));
    return path != nullptr ? path->after_bcast(comm.gpu, buffer, at != buffer) : Status();
  });
}

Status SparseImages::load(heddle_comm& comm, SparseView* view) {
  if (!comm.gpu.present()) return {};
  Result<gpu::Image> indices = comm.gpu.image(view->indices, view->count * index_size(view->index_type));
  if (!indices.ok()) return indices.status();
  Result<gpu::Image> values = comm.gpu.image(view->values, view->count * dtype_size(view->value_type));
  if (!values.ok()) return values.status();
  indices_ = std::move(indices).value();
  values_ = std::move(values).value();
  view->indices = indices_.host();
  view->values = values_.host();
  HEDDLE_TRY(indices_.load());
  return values_.load();
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
