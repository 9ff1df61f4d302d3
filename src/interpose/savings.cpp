#include "interpose/savings.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "comm/local_compressed.hpp"
#include "sparse/stream.hpp"

namespace heddle {
namespace {

// A look costs two latencies; a vector of this size takes several.
constexpr std::size_t kLeastLook = std::size_t{64} << 10;
constexpr std::uint32_t kLongestBackoff = 1024;

}  // namespace

std::unique_ptr<Savings> Savings::make(const Config& config, Communicator& communicator, const Log& log) {
  if (communicator.topology().nodes() == 1) return nullptr;
  if (config.compress.empty() && !config.sparse) return nullptr;
  std::unique_ptr<Savings> savings(new Savings(config, communicator, log));
  if (!config.compress.empty()) {
    const Result<Compression> compression = parse_compression(config.compress);
    savings->lossy_ = compression.ok();
    if (savings->lossy_) savings->compression_ = compression.value();
  }
  savings->least_bytes_ = config.sparse ? kLeastLook : SIZE_MAX;
  if (savings->lossy_) savings->least_bytes_ = std::min(savings->least_bytes_, config.compress_from);
  return savings;
}

bool Savings::is_looked_at(DType type, std::size_t bytes) const {
  return config_.sparse && bytes >= kLeastLook && is_sparse_value(type);
}

bool Savings::compresses(DType type, std::size_t bytes) const {
  return lossy_ && bytes >= config_.compress_from &&
         (type == DType::f32 ? config_.compress_f32 : type == DType::f64 && config_.compress_f64);
}

bool Savings::wants_look(std::size_t count) {
  Backoff& backoff = backoff_of(count);
  if (backoff.left == 0) return true;
  --backoff.left;
  return false;
}

Result<bool> Savings::by_entries(const MostlyZeroJob& job) {
  Result<bool> served = communicator_.sum_by_entries(job);
  if (!served.ok()) return served;
  Backoff& backoff = backoff_of(job.count);
  if (communicator_.sparse_stats().algorithm != std::string_view("dense")) {
    backoff.next = 1;
    return served;
  }
  backoff.left = backoff.next;
  backoff.next = std::min(2 * backoff.next, kLongestBackoff);
  return served;
}

PlacedResidual* Savings::residual_of(const void* key, std::size_t count) {
  if (!gains_from_residual(compression_)) return nullptr;
  return residuals_.of(key, count);
}

CompressedJob Savings::job_of(const float* in, float* out, std::size_t count) const {
  CompressedJob job;
  job.in = in;
  job.out = out;
  job.count = count;
  job.how = compression_;
  job.agreed = true;  // the settings when heddle was set up, the count by MPI's rules
  return job;
}

Status Savings::compress(const void* in, void* out, std::size_t count, DType type, const void* key) {
  CompressedJob job = job_of(static_cast<const float*>(in), static_cast<float*>(out), count);
  if (PlacedResidual* const residual = residual_of(key, count); residual != nullptr) {
    const Result<Residual*> values = residual->on_host();
    if (!values.ok()) return values.status();
    job.residual = values.value();
  }
  if (type == DType::f32) return communicator_.compressed_allreduce(job);
  // The caller's may lie at any address.
  const auto* from = static_cast<const std::byte*>(in);
  auto* to = static_cast<std::byte*>(out);
  double wide = 0;
  in_.resize(count);
  out_.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(&wide, from + i * sizeof wide, sizeof wide);
    in_[i] = static_cast<float>(wide);
  }
  job.in = in_.data();
  job.out = out_.data();
  HEDDLE_TRY(communicator_.compressed_allreduce(job));
  for (std::size_t i = 0; i < count; ++i) {
    wide = out_[i];
    std::memcpy(to + i * sizeof wide, &wide, sizeof wide);
  }
  return {};
}

Status Savings::compress_anywhere(gpu::Gpu& gpu, const float* in, float* out, std::size_t count,
                                  const void* key, const std::function<Status(bool on_gpu)>& after) {
  return compressed_allreduce_anywhere(gpu, communicator_, job_of(in, out, count), residual_of(key, count),
                                       after);
}

}  // namespace heddle
