#include "device/local_codes.hpp"

#include <utility>

#include "device/device_codes.hpp"

namespace heddle {
namespace {

// The link's pieces of memory; that of results is another one.
constexpr std::size_t kContributions = 1;
constexpr std::size_t kHeld = 2;

}  // namespace

LocalCodes::LocalCodes(gpu::Gpu& gpu, LocalLink& at, const DeviceCoded& job, CodedPlan plan, float* residual)
    : gpu_(gpu), at_(at), job_(job), plan_(std::move(plan)), residual_(residual) {}

Status LocalCodes::reserve() {
  const Result<std::byte*> codes = at_.sparse->piece(kContributions, plan_.contributed_bytes);
  if (!codes.ok()) return codes.status();
  codes_ = codes.value();
  const void* held = job_.in + plan_.held.first;
  if (residual_ != nullptr) {
    lost_.resize(plan_.held.count);
    const Result<std::byte*> sums = at_.sparse->piece(kHeld, held_bytes());
    if (!sums.ok()) return sums.status();
    sums_ = reinterpret_cast<float*>(sums.value());
    held = sums_;
  }
  Result<gpu::Image> contributions = gpu_.image(codes_, plan_.contributed_bytes);
  if (!contributions.ok()) return contributions.status();
  Result<gpu::Image> values = gpu_.image(held, held_bytes());
  if (!values.ok()) return values.status();
  contributions_ = std::move(contributions).value();
  held_ = std::move(values).value();
  return {};
}

Status LocalCodes::code() {
  Status given = at_.link->after_earlier_work();
  if (given.ok()) given = give_codes(nullptr);
  if (given.ok() && residual_ != nullptr && plan_.held.count > 0) {
    const void* const inputs[] = {job_.in + plan_.held.first, residual_ + plan_.held.first};
    void* const outputs[] = {sums_};
    given = at_.link->fold(DType::f32, Op::sum, inputs, outputs, plan_.held.count);
  }
  HEDDLE_TRY(at_.finish(std::move(given)));
  Status loaded = contributions_.load();
  if (loaded.ok()) loaded = held_.load();
  if (!loaded.ok()) at_.failed = true;
  return loaded;
}

// Chunk by chunk: buckets begin anew in each.
Status LocalCodes::give_codes(float* left_out) {
  const gpu::Quantiser how = quantiser_of(job_.how);
  for (const CodedPlan::Chunk& chunk : plan_.chunks) {
    if (!chunk.is_contributed) continue;
    const std::size_t first = chunk.values.first;
    const float* const residual = residual_ != nullptr ? residual_ + first : nullptr;
    float* const to = left_out != nullptr ? left_out + first : nullptr;
    HEDDLE_TRY(at_.sparse->quantise(how, job_.in + first, residual, to, chunk.values.count, first,
                                    codes_ + chunk.contributed_at));
  }
  return {};
}

// By coding it all once more: the codes are the same, and nothing of the residual had to change before all
// ranks were known to go on.
void LocalCodes::keep() {
  if (residual_ == nullptr) return;
  keeps_ = true;
  job_.residual->changes_on_gpu();
  kept_ = give_codes(residual_);
}

Status LocalCodes::finish(bool complete) {
  if (!keeps_) return {};
  settle();
  Status done = kept_;
  if (done.ok() && complete) done = gpu_.write(residual_ + plan_.held.first, lost_.data(), held_bytes());
  Status shown = job_.residual->after_call();
  return done.ok() ? shown : done;
}

// ---- What this rank's GPU can do

Result<std::unique_ptr<LocalCodes>> LocalGpu::codes(gpu::Gpu& gpu, const DeviceCoded& job,
                                                    const CodedPlan& plan) {
  std::unique_ptr<LocalCodes> none;
  const std::size_t bytes = job.n * sizeof(float);
  const std::size_t crossing = plan.contributed_bytes + plan.held.count * sizeof(float);
  if (!job.is_for_gpus() || !plan.takes_contributions || crossing > bytes) return none;
  LocalLink* const at = reach(gpu, job.in, bytes, sizeof(float));
  if (at == nullptr) return none;
  float* residual = nullptr;
  if (job.residual != nullptr) {
    const Result<float*> there = job.residual->on_gpu(*at->sparse, *at->link);
    if (!there.ok()) return none;
    residual = there.value();
  }
  auto codes = std::make_unique<LocalCodes>(gpu, *at, job, plan, residual);
  if (!codes->reserve().ok()) return none;
  HEDDLE_TRY(codes->code());
  return codes;
}

}  // namespace heddle
