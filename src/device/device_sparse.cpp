// Allreduces of sparse vectors, and of dense ones by their largest entries or through a codec, on GPUs: what
// DevicePath does of them.
#include <cstdint>
#include <memory>
#include <utility>

#include "base/overlap.hpp"
#include "device/device_codes.hpp"
#include "device/device_entries.hpp"
#include "device/device_merge.hpp"
#include "device/device_path.hpp"

namespace heddle {
namespace {

bool is_aligned(const void* buffer, std::size_t to) {
  return reinterpret_cast<std::uintptr_t>(buffer) % to == 0;
}

std::unique_ptr<EntriesWork> fold_into_dense(const EntriesWorker& worker, const DeviceEntries& job,
                                             std::uint64_t asked) {
  if (job.op == Op::sum && !worker.direct)
    return std::make_unique<EntriesSum>(worker, job.in, job.type, job.out, job.dimension, asked);
  return std::make_unique<SpreadEntries>(worker, job.in, job.type, job.op, job.out, job.dimension, asked);
}

// Ends a call: to a caller who looks at the residual's values it comes back after each.
Result<bool> show(PlacedResidual* residual, Result<bool> served) {
  if (!served.ok() || !served.value() || residual == nullptr) return served;
  Status kept = residual->after_call();
  return kept.ok() ? served : Result<bool>(std::move(kept));
}

}  // namespace

EntriesWorker DevicePath::entries_worker() const {
  return {worker(), links_.sparse(), links_.direct()};
}

// Of elements of `element` bytes, for kernels.
Result<bool> DevicePath::holds_aligned(const void* buffer, std::size_t bytes, std::size_t element) {
  if (bytes == 0) return true;
  return is_aligned(buffer, element) ? links_.link()->holds(buffer, bytes) : Result<bool>(false);
}

// A count that nobody set is refused on the way by images: its bytes may be fewer than they seem.
Result<bool> DevicePath::holds_input(const gpu::Entries& in, DType type, std::size_t dimension) {
  return in.count <= dimension ? holds_entries(in, type) : Result<bool>(false);
}

Result<bool> DevicePath::holds_entries(const gpu::Entries& entries, DType type) {
  const std::size_t index = gpu::index_bytes(entries.wide);
  const std::size_t width = dtype_size(type);
  Result<bool> here = holds_aligned(entries.indices, entries.count * index, index);
  if (here.ok() && here.value()) here = holds_aligned(entries.values, entries.count * width, width);
  return here;
}

Result<bool> DevicePath::can_add(const DeviceEntries& job) {
  const std::size_t width = dtype_size(job.type);
  if (!job.is_for_gpus()) return false;
  if (!links_.direct() && !EntriesWork::has_room(links_.layout())) return false;
  Result<bool> here = holds_aligned(job.out, job.dimension * width, width);
  if (here.ok() && here.value()) here = holds_input(job.in, job.type, job.dimension);
  if (!here.ok() || !here.value()) return here;
  HEDDLE_TRY(links_.after_streams());
  const bool adds = job.op == Op::sum && !links_.direct();
  gpu::SparseLink* const sparse = links_.make_sparse();
  return sparse != nullptr && (adds || sparse->reserve_merges().ok());
}

// What is not for GPUs, and that on all ranks, is no reason to end the mode, in which others are.
Result<bool> DevicePath::serve_entries(const DeviceEntries& job, std::uint64_t asked,
                                       DeviceTraffic* traffic) {
  const Result<bool> here = can_add(job);
  const std::unique_ptr<EntriesWork> work = fold_into_dense(entries_worker(), job, asked);
  Result<bool> served = links_.run(*work, here);
  if (served.ok() && served.value()) served = work->is_complete();
  if (job.is_for_gpus() || !served.ok() || !work->agreed()) served = conclude(std::move(served));
  const std::size_t width = dtype_size(job.type) + gpu::index_bytes(job.in.wide);
  *traffic = {work->total(), work->own() * width};
  return served;
}

Result<bool> DevicePath::can_merge(const DeviceMerge& job) {
  if (!job.is_for_gpus()) return false;
  if (!links_.direct() && !EntriesWork::has_room(links_.layout())) return false;
  const Result<bool> here = holds_input(job.in, job.type, job.dimension);
  if (!here.ok() || !here.value()) return here;
  HEDDLE_TRY(links_.after_streams());
  gpu::SparseLink* const sparse = links_.make_sparse();
  return sparse != nullptr && sparse->reserve_merges().ok();
}

// The caller's arrays, if this rank's GPU can write the result there at once: as much as it has room for, and
// not over its input. Where not, nothing is wrong.
gpu::Room DevicePath::room_here(const DeviceMerge& job) {
  const gpu::Room& out = job.out;
  const std::size_t index = gpu::index_bytes(out.wide);
  const std::size_t width = dtype_size(job.type);
  const gpu::Room nowhere{nullptr, nullptr, 0, out.wide};
  if (out.capacity == 0 || out.capacity > SIZE_MAX / sizeof(std::uint64_t)) return nowhere;
  for (const auto& [input, bytes] : {std::pair(job.in.indices, job.in.count * gpu::index_bytes(job.in.wide)),
                                     std::pair(job.in.values, job.in.count * width)}) {
    if (overlap(input, bytes, out.indices, out.capacity * index)) return nowhere;
    if (overlap(input, bytes, out.values, out.capacity * width)) return nowhere;
  }
  const Result<bool> here = holds_entries({out.indices, out.values, out.capacity, out.wide}, job.type);
  return here.ok() && here.value() ? out : nowhere;
}

Result<bool> DevicePath::serve_merge(const DeviceMerge& job, std::uint64_t asked, DeviceTraffic* traffic,
                                     DeviceMerged* merged) {
  const Result<bool> here = can_merge(job);
  const gpu::Room out = here.ok() && here.value() ? room_here(job) : gpu::Room();
  // Another number than that of the same with a dense result.
  MergedEntries work(entries_worker(), {job.in, job.type, job.op, job.dimension, out}, ~asked);
  Result<bool> served = links_.run(work, here);
  if (served.ok() && served.value()) served = work.is_complete();
  if (job.is_for_gpus() || !served.ok() || !work.agreed()) served = conclude(std::move(served));
  if (!served.ok() || !served.value()) return served;
  *traffic = {work.total(), work.own() * (dtype_size(job.type) + gpu::index_bytes(job.in.wide))};
  *merged = {work.result(), work.is_placed()};
  return served;
}

Result<bool> DevicePath::copy(void* to, const void* from, std::size_t bytes) {
  gpu::Link* const link = links_.link();
  if (link == nullptr) return false;
  const Result<bool> here = link->holds(to, bytes);
  if (!here.ok() || !here.value()) return here;
  HEDDLE_TRY(link->copy(to, from, bytes));
  HEDDLE_TRY(link->wait());
  return true;
}

Result<bool> DevicePath::holds_vectors(const float* in, const float* out, std::size_t n) {
  const std::size_t bytes = n * sizeof(float);
  const Result<bool> here = holds_aligned(out, bytes, sizeof(float));
  return here.ok() && here.value() && in != out ? holds_aligned(in, bytes, sizeof(float)) : here;
}

// A residual on the GPU, if there is any.
Result<bool> DevicePath::place(PlacedResidual* residual, float** left_out) {
  if (residual == nullptr) return true;
  const Result<float*> values = residual->on_gpu(*links_.sparse(), *links_.link());
  if (values.ok()) *left_out = values.value();
  return values.ok();
}

// With memory for all of it, here and below: from the first meeting on nothing that can be missing is asked
// for.
Result<bool> DevicePath::can_select(const DeviceLargest& job, float** left_out) {
  if (!job.is_for_gpus()) return false;
  if (!links_.direct() && !EntriesWork::has_room(links_.layout())) return false;
  const Result<bool> here = holds_vectors(job.in, job.out, job.n);
  if (!here.ok() || !here.value()) return here;
  HEDDLE_TRY(links_.after_streams());
  gpu::SparseLink* const sparse = links_.make_sparse();
  if (sparse == nullptr || !sparse->reserve(job.n, job.k).ok()) return false;
  return place(job.residual, left_out);
}

Result<bool> DevicePath::serve_largest(const DeviceLargest& job, std::uint64_t asked,
                                       DeviceTraffic* traffic) {
  float* left_out = nullptr;
  const Result<bool> here = can_select(job, &left_out);
  LargestSum work(entries_worker(), {job.in, job.out, job.n, job.k, job.residual, left_out}, asked);
  Result<bool> served = links_.run(work, here);
  if (job.is_for_gpus() || !served.ok() || !work.agreed()) served = conclude(std::move(served));
  *traffic = {work.total(), work.own() * (sizeof(float) + (job.n > UINT32_MAX ? 8 : 4))};
  return show(job.residual, std::move(served));
}

Result<bool> DevicePath::can_code(const DeviceCoded& job, CodedJob* mine) {
  if (!job.is_for_gpus()) return false;
  if (!links_.direct() && CodedSum::values_at_once(links_.layout(), mine->how, job.n) == 0) return false;
  const Result<bool> here = holds_vectors(job.in, job.out, job.n);
  if (!here.ok() || !here.value()) return here;
  HEDDLE_TRY(links_.after_streams());
  gpu::SparseLink* const sparse = links_.make_sparse();
  if (sparse == nullptr) return false;
  if (links_.direct()) {
    const Result<std::byte*> codes = sparse->piece(0, mine->how.coded_bytes(job.n));
    if (!codes.ok()) return false;
    mine->codes = codes.value();
  }
  return place(job.residual, &mine->left_out);
}

Result<bool> DevicePath::serve_coded(const DeviceCoded& job, std::uint64_t asked, DeviceTraffic* traffic) {
  CodedJob mine{job.in, job.out, job.n, quantiser_of(job.how), job.residual};
  const Result<bool> here = can_code(job, &mine);
  CodedSum work(entries_worker(), mine, asked);
  Result<bool> served = links_.run(work, here);
  if (served.ok() && !work.is_valid())
    served =
        Status(Code::internal,
               "the codes of a rank's vector on its GPU were overwritten before all had added them up: no "
               "encoder writes what is there");
  if (job.is_for_gpus() || !served.ok() || !work.agreed()) served = conclude(std::move(served));
  *traffic = {0, mine.how.coded_bytes(job.n)};
  return show(job.residual, std::move(served));
}

}  // namespace heddle
