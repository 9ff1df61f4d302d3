// Collectives of the C API on buffers that may lie on a GPU: they run on images of those on the host.
#pragma once

#include <cstddef>
#include <memory>

#include "api/arguments.hpp"
#include "api/handles.hpp"
#include "base/status.hpp"
#include "device/placed_residual.hpp"
#include "gpu/gpu.hpp"

namespace heddle::edge {

enum class Access : std::uint8_t { none, read, write, both };

// Runs `body` on the host's view of a buffer, which is the buffer itself unless it lies on a GPU.
template <typename Body>
Status with_image(heddle_comm& comm, const void* buffer, std::size_t bytes, Access access, const Body& body) {
  if (!comm.gpu.present()) [[likely]]
    return body(const_cast<void*>(buffer));
  Result<gpu::Image> image = comm.gpu.image(buffer, bytes);
  if (!image.ok()) return image.status();
  if (access == Access::read || access == Access::both) HEDDLE_TRY(image->load());
  HEDDLE_TRY(body(image->host()));
  return access == Access::write || access == Access::both ? image->store() : Status();
}

// The same for an input and an output of `bytes` bytes each, which may be one.
template <typename Body>
Status with_images(heddle_comm& comm, const void* in, void* out, std::size_t bytes, const Body& body) {
  if (!comm.gpu.present()) [[likely]]
    return body(in, out);
  if (in == out)
    return with_image(comm, out, bytes, Access::both, [&](void* both) { return body(both, both); });
  return with_image(comm, in, bytes, Access::read, [&](void* from) {
    return with_image(comm, out, bytes, Access::write, [&](void* to) { return body(from, to); });
  });
}

// Of a bcast.
inline Access access_of(const heddle_comm& comm, int root) {
  return comm.communicator->rank() == root ? Access::read : Access::write;
}

// The blocking collectives that should cost little on the host's memory; called only where there may be
// other.
Status allreduce_anywhere(heddle_comm& comm, const Reduction& reduction);
Status bcast_anywhere(heddle_comm& comm, void* buffer, std::size_t bytes, int root);
// By way of the host.
Status reduce_anywhere(heddle_comm& comm, const Reduction& reduction, int root);
// `in`: null in place.
Status allgather_anywhere(heddle_comm& comm, const void* in, void* out, std::size_t bytes);

// Those of vectors that are sparse, or become so. job.dense, and job.in and job.out, are the caller's;
// job.residual is not set, and `residual` may be null.
Status sparse_to_dense_anywhere(heddle_comm& comm, const SparseJob& job);
// Of a rank that the host cannot see the arrays of, after what is by the GPUs: the others hear of it instead
// of waiting.
Status withdraw_from_sparse(heddle_comm& comm, Status trouble);
Status mostly_zero_anywhere(heddle_comm& comm, const Reduction& reduction);
Status compressed_anywhere(heddle_comm& comm, const CompressedJob& job, PlacedResidual* residual);

// Images of the arrays of a sparse vector.
class SparseImages {
 public:
  // Makes `view` one that the host can read, once it is loaded.
  Status place(heddle_comm& comm, SparseView* view);
  Status load();
  // Both.
  Status load(heddle_comm& comm, SparseView* view);
  bool beside() const { return indices_.beside() || values_.beside(); }

 private:
  gpu::Image indices_;
  gpu::Image values_;
};

// A request on them: they are loaded at every start. What it gives goes to where it is wanted by itself.
class SparseImageRequest final : public Request {
 public:
  SparseImageRequest(SparseImages images, std::unique_ptr<Request> request)
      : images_(std::move(images)), request_(std::move(request)) {}

  Status start() override {
    HEDDLE_TRY(images_.load());
    return request_->start();
  }
  Status test(bool* done) override { return request_->test(done); }
  Status wait() override { return request_->wait(); }
  bool active() const override { return request_->active(); }

 private:
  SparseImages images_;
  std::unique_ptr<Request> request_;  // goes first: it uses the images
};

// A request on images of its buffers: they are loaded at every start, and what it writes is stored by the
// test or wait that finds it complete.
class ImageRequest final : public Request {
 public:
  // `in` and `out` may be images of nothing. `access` is what the request does with `out`.
  ImageRequest(gpu::Image in, gpu::Image out, Access access)
      : in_(std::move(in)), out_(std::move(out)), access_(access) {}

  const void* in() const { return in_.host(); }
  void* out() const { return out_.host(); }
  void serve(std::unique_ptr<Request> request) { request_ = std::move(request); }

  Status start() override;
  Status test(bool* done) override;
  Status wait() override;
  bool active() const override { return under_way_ || request_->active(); }

 private:
  Status finish();

  gpu::Image in_;
  gpu::Image out_;
  Access access_;
  bool under_way_ = false;
  std::unique_ptr<Request> request_;  // goes first: it uses the images
};

// Makes a request by `make(in, out)`, on images where a buffer lies on a GPU. Either may be null, and they
// may be one.
template <typename Make>
Result<std::unique_ptr<Request>> request_with_images(heddle_comm& comm, const void* in, std::size_t in_bytes,
                                                     void* out, std::size_t out_bytes, Access access,
                                                     const Make& make) {
  if (!comm.gpu.present()) [[likely]]
    return make(in, out);
  const bool in_place = in == out;
  Result<gpu::Image> to = out == nullptr ? gpu::Image() : comm.gpu.image(out, out_bytes);
  if (!to.ok()) return to.status();
  Result<gpu::Image> from = in_place || in == nullptr ? gpu::Image() : comm.gpu.image(in, in_bytes);
  if (!from.ok()) return from.status();
  if (!to->beside() && !from->beside()) return make(in, out);
  auto request = std::make_unique<ImageRequest>(std::move(from).value(), std::move(to).value(),
                                                in_place ? Access::both : access);
  auto made = make(in_place ? request->out() : request->in(), request->out());
  if (!made.ok()) return made.status();
  request->serve(std::move(made).value());
  return std::unique_ptr<Request>(std::move(request));
}

}  // namespace heddle::edge
