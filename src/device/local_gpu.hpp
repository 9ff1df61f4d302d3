// What a rank's GPU does by itself for a sum whose entries, or codes, travel between the hosts: it takes them
// from this rank's vector (codes: local_codes.hpp), and puts those of the result into one. So the host sees
// entries or codes, and not the vectors.
//
// Other ranks neither ask nor know: the hosts exchange what they would by images (gpu/gpu.hpp), in the same
// calls. What this rank's GPU cannot do goes by an image on this rank alone.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/dtype.hpp"
#include "base/log.hpp"
#include "base/status.hpp"
#include "compress/coded_run.hpp"
#include "device/device_entries.hpp"
#include "device/device_path.hpp"
#include "gpu/gpu.hpp"
#include "gpu/link.hpp"
#include "gpu/sparse_link.hpp"
#include "sparse/stream.hpp"

namespace heddle {

class LocalCodes;  // device/local_codes.hpp

// Of one context.
struct LocalLink {
  std::unique_ptr<gpu::Link> link;
  std::unique_ptr<gpu::SparseLink> sparse;  // goes first
  std::byte* samples = nullptr;             // pinned; null: not yet
  bool failed = false;                      // and is no more used after the call

  // Waits for what was given, also where giving it failed, and returns the first failure.
  Status finish(Status given);
};

// Entries that a GPU has, in the host's memory.
class EntriesImage {
 public:
  Result<SparseView> load(gpu::Gpu& gpu, const gpu::Entries& entries, DType type, std::size_t dimension);

 private:
  gpu::Image indices_;
  gpu::Image values_;
};

// The largest entries of this rank's vector, in one call.
class LocalLargest {
 public:
  LocalLargest(gpu::Gpu& gpu, LocalLink& at, const LargestJob& job) : gpu_(gpu), at_(at), job_(job) {}

  // Once. In the host's memory, until the end of this; the residual has the others from then on. After a
  // failure that is what it was, or has the vector in it, without the entries.
  Result<SparseView> take();
  // Where they were not summed after all: the residual has all of this call's vector then, which nobody else
  // has.
  Status put_back();

 private:
  gpu::Gpu& gpu_;
  LocalLink& at_;
  const LargestJob job_;
  EntriesImage entries_;
  SparseView taken_;
};

// A vector that takes the result of one call, and may be what is summed.
class LocalVector {
 public:
  LocalVector(gpu::Gpu& gpu, LocalLink& at, void* vector, std::size_t count, DType type)
      : gpu_(gpu), at_(at), vector_(vector), count_(count), type_(type) {}

  std::size_t count() const { return count_; }
  DType type() const { return type_; }

  // As heddle::sampled_density(), with the same number. By an image where the GPU fails.
  Result<double> sampled_density(std::size_t samples);
  // Its elements that are not zero, in the host's memory until the end of this. After sampled_density(). A
  // failure changes nothing.
  Result<SparseView> entries();

  // The entries of all parts, and zeros elsewhere; or what was there, where it `keeps` that. Complete on
  // return. By an image where the GPU fails.
  void put(std::span<const SparseView> parts, bool keeps);

  // Room for the codes of a result, in the host's memory until the end of this.
  Status reserve_codes(CodedPlan plan, const CodecSettings& how);
  std::byte* codes() const { return static_cast<std::byte*>(coded_.host()); }
  // What the codes that are there now stand for. Complete on return. By an image where the GPU fails.
  void put_codes();

  // For those who need it whole, in the host's memory until the end of this: room for it; what is in it; and
  // back.
  Result<void*> image();
  Result<void*> load();
  void store() { outcome_ = image_.store(); }

  // After the call: what became of the result. It is no affair of the other ranks, who have theirs.
  const Status& outcome() const { return outcome_; }

 private:
  Result<double> sample(std::size_t samples);
  Result<gpu::Entries> select();
  Status select(const gpu::Room& to);
  std::size_t bytes() const { return count_ * dtype_size(type_); }
  Status give(const gpu::Entries& entries, bool keeps);
  Result<gpu::Entries> upload(std::span<const SparseView> parts);
  Status put_by_gpu(std::span<const SparseView> parts, bool keeps);
  Status decode_by_gpu();
  Status decode_by_host();

  gpu::Gpu& gpu_;
  LocalLink& at_;
  void* const vector_;
  const std::size_t count_;
  const DType type_;
  double density_ = 0;  // as sampled
  EntriesImage entries_;
  CodedPlan plan_;  // of a result that comes as codes
  CodecSettings how_;
  std::byte* codes_ = nullptr;  // on the GPU
  gpu::Image coded_;
  gpu::Image image_;
  Status outcome_;
};

// One thread at a time. The Gpu, which is the same one in all calls, outlives it.
class LocalGpu {
 public:
  // Bytes of a vector. Of shorter ones an image takes little longer than what the host waits for. Not
  // measured.
  static constexpr std::size_t kFrom = std::size_t{1} << 20;

  LocalGpu(bool enabled, const Log& log) : log_(log), off_(!enabled) {}
  LocalGpu(const LocalGpu&) = delete;
  LocalGpu& operator=(const LocalGpu&) = delete;
  ~LocalGpu() = default;

  // Of so many bytes.
  bool serves(std::size_t bytes) const { return !off_ && bytes >= kFrom; }
  // With memory for the work. Null where the host is to do it: the vector is not on a GPU, or that cannot do
  // it. Nothing has changed then, or here. `job.out` is not looked at.
  std::unique_ptr<LocalLargest> largest(gpu::Gpu& gpu, const DeviceLargest& job);
  std::unique_ptr<LocalVector> vector(gpu::Gpu& gpu, void* vector, std::size_t count, DType type);
  // Coded already. A failure is the GPU's, and has changed nothing.
  Result<std::unique_ptr<LocalCodes>> codes(gpu::Gpu& gpu, const DeviceCoded& job, const CodedPlan& plan);

 private:
  LocalLink* reach(gpu::Gpu& gpu, const void* vector, std::size_t bytes, std::size_t element);
  LocalLink* make(gpu::Gpu& gpu, const gpu::Place& place);

  const Log log_;
  bool off_;                                       // for good
  std::vector<std::unique_ptr<LocalLink>> links_;  // for each context that was met
};

}  // namespace heddle
