// Allreduces of sparse vectors, and of the largest entries of dense ones, on GPUs: what DevicePath does of them.
#include <utility>

#include "comm/device_entries.hpp"
#include "comm/device_path.hpp"

namespace heddle {
namespace {

bool is_aligned(const void* buffer, std::size_t to) {
  return reinterpret_cast<std::uintptr_t>(buffer) % to == 0;
}

}  // namespace

// Whether this rank has kernels for sparse vectors, and memory for their work.
bool DevicePath::has_sparse() {
  if (sparse_ != nullptr) return true;
  Result<std::unique_ptr<gpu::SparseLink>> made = gpu::make_sparse_link(*link_);
  if (!made.ok()) {
    log_.info("sparse vectors on GPUs stay staged by images on the host: " + made.status().message());
    return false;
  }
  sparse_ = std::move(made).value();
  return true;
}

// Of elements of `element` bytes, for kernels.
Result<bool> DevicePath::holds_aligned(const void* buffer, std::size_t bytes, std::size_t element) {
  if (bytes == 0) return true;
  return is_aligned(buffer, element) ? link_->holds(buffer, bytes) : Result<bool>(false);
}

Result<bool> DevicePath::can_add(const DeviceEntries& job) {
  const std::size_t width = dtype_size(job.type);
  const std::size_t index = job.in.wide ? 8 : 4;
  if (!job.is_for_gpus()) return false;
  if (!direct_ && !EntriesWork::has_room(layout_)) return false;
  Result<bool> here = holds_aligned(job.out, job.dimension * width, width);
  if (here.ok() && here.value()) here = holds_aligned(job.in.indices, job.in.count * index, index);
  if (here.ok() && here.value()) here = holds_aligned(job.in.values, job.in.count * width, width);
  return here.ok() && here.value() ? Result<bool>(has_sparse()) : here;
}

// What is not for GPUs, and that on all ranks, is no reason to end the mode, in which others are.
Result<bool> DevicePath::serve_entries(const DeviceEntries& job, std::uint64_t asked,
                                       DeviceTraffic* traffic) {
  const Result<bool> here = can_add(job);
  EntriesSum work({worker(), sparse_.get(), direct_}, job.in, job.type, job.out, job.dimension, asked);
  Result<bool> served = run(work, here);
  if (job.is_for_gpus() || !served.ok() || !work.agreed()) served = conclude(std::move(served));
  const std::size_t width = dtype_size(job.type) + (job.in.wide ? 8 : 4);
  *traffic = {work.total(), work.own() * width};
  return served;
}

// With memory for all of it: from the first meeting on nothing that can be missing is asked for.
Result<bool> DevicePath::can_select(const DeviceLargest& job, float** left_out) {
  const std::size_t bytes = job.n * sizeof(float);
  if (!job.is_for_gpus()) return false;
  if (!direct_ && !EntriesWork::has_room(layout_)) return false;
  Result<bool> here = holds_aligned(job.out, bytes, sizeof(float));
  if (here.ok() && here.value() && job.in != job.out) here = holds_aligned(job.in, bytes, sizeof(float));
  if (!here.ok() || !here.value()) return here;
  if (!has_sparse() || !sparse_->reserve(job.n, job.k).ok()) return false;
  if (job.residual == nullptr) return true;
  const Result<float*> values = job.residual->on_gpu(*sparse_, *link_);
  if (values.ok()) *left_out = values.value();
  return values.ok();
}

Result<bool> DevicePath::serve_largest(const DeviceLargest& job, std::uint64_t asked,
                                       DeviceTraffic* traffic) {
  float* left_out = nullptr;
  const Result<bool> here = can_select(job, &left_out);
  LargestSum work({worker(), sparse_.get(), direct_}, {job.in, job.out, job.n, job.k, job.residual, left_out},
                  asked);
  Result<bool> served = run(work, here);
  if (job.is_for_gpus() || !served.ok() || !work.agreed()) served = conclude(std::move(served));
  *traffic = {work.total(), work.own() * (sizeof(float) + (job.n > UINT32_MAX ? 8 : 4))};
  if (!served.ok() || !served.value() || job.residual == nullptr) return served;
  if (Status kept = job.residual->after_call(); !kept.ok()) return kept;
  return served;
}

}  // namespace heddle
