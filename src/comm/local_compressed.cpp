#include "comm/local_compressed.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "device/device_path.hpp"
#include "device/local_codes.hpp"
#include "device/local_gpu.hpp"

namespace heddle {
namespace {

// This rank's part of one call.
class OwnPart {
 public:
  OwnPart(gpu::Gpu& gpu, Communicator& communicator, const CompressedJob& job, PlacedResidual* residual)
      : gpu_(gpu), communicator_(communicator), job_(job), residual_(residual) {}

  // What the GPU is to do, and images for the rest.
  Status prepare();
  // `prepared`: a failure is told to all ranks.
  Status run(Status prepared, const std::function<Status(bool on_gpu)>& after);

 private:
  void select();
  Status code();
  bool has_input() const { return largest_ != nullptr || codes_ != nullptr; }
  Status prepare_images();

  gpu::Gpu& gpu_;
  Communicator& communicator_;
  CompressedJob job_;
  PlacedResidual* const residual_;
  std::unique_ptr<LocalLargest> largest_;
  std::unique_ptr<LocalCodes> codes_;
  std::unique_ptr<LocalVector> there_;
  gpu::Image in_;
  gpu::Image out_;
};

void OwnPart::select() {
  const std::size_t wanted = largest_wanted(job_);
  if (wanted == 0) return;
  LocalGpu& local = communicator_.local_gpu();
  largest_ = local.largest(gpu_, {job_.in, job_.out, job_.count, wanted, residual_});
  there_ = local.vector(gpu_, job_.out, job_.count, DType::f32);
}

// Where nobody compares what the ranks want, a failure cannot be told to the others: an image may do.
Status OwnPart::code() {
  LocalGpu& local = communicator_.local_gpu();
  DeviceCoded coded{job_.in, job_.out, job_.count, job_.how.codec, residual_};
  coded.how.seed = communicator_.codec_seed(job_.how.codec.seed);
  if (!local.serves(job_.count * sizeof(float)) || !coded.is_for_gpus()) return {};
  const CodedPlan plan = communicator_.coded_plan(job_.count, job_.how.codec);
  Result<std::unique_ptr<LocalCodes>> codes = local.codes(gpu_, coded, plan);
  if (!codes.ok() && !job_.agreed) return codes.status();
  if (codes.ok()) codes_ = std::move(codes).value();
  there_ = local.vector(gpu_, job_.out, job_.count, DType::f32);
  if (there_ != nullptr && !there_->reserve_codes(plan, job_.how.codec).ok()) there_.reset();
  return {};
}

Status OwnPart::prepare() {
  if (gpu_.present()) {
    if (job_.how.method == Compression::Method::codec) {
      HEDDLE_TRY(code());
    } else {
      select();
    }
  }
  job_.largest = largest_.get();
  job_.codes = codes_.get();
  job_.there = there_.get();
  if (residual_ != nullptr && !has_input()) {
    const Result<Residual*> values = residual_->on_host();
    if (!values.ok()) return values.status();
    job_.residual = values.value();
  }
  return gpu_.present() ? prepare_images() : Status();
}

Status OwnPart::prepare_images() {
  const std::size_t bytes = job_.count * sizeof(float);
  const bool in_place = job_.in == job_.out;
  if (there_ == nullptr) {
    Result<gpu::Image> out = gpu_.image(job_.out, bytes);
    if (!out.ok()) return out.status();
    out_ = std::move(out).value();
    if (in_place && !has_input()) HEDDLE_TRY(out_.load());
    job_.out = static_cast<float*>(out_.host());
  }
  if (has_input()) {
    job_.in = nullptr;
  } else if (in_place && there_ == nullptr) {
    job_.in = job_.out;
  } else {
    Result<gpu::Image> in = gpu_.image(job_.in, bytes);
    if (!in.ok()) return in.status();
    in_ = std::move(in).value();
    HEDDLE_TRY(in_.load());
    job_.in = static_cast<const float*>(in_.host());
  }
  return {};
}

Status OwnPart::run(Status prepared, const std::function<Status(bool on_gpu)>& after) {
  job_.trouble = std::move(prepared);
  Status summed = communicator_.compressed_allreduce(job_);
  // Whether that succeeds or not: the call has failed, and says of what.
  if (!summed.ok() && largest_ != nullptr) static_cast<void>(largest_->put_back());
  const Status kept = codes_ != nullptr ? codes_->finish(summed.ok()) : Status();
  HEDDLE_TRY(summed);
  const bool out_on_gpu = there_ != nullptr || out_.beside();
  const bool in_on_gpu = has_input() || in_.beside() || (job_.in == job_.out && out_on_gpu);
  HEDDLE_TRY(after(in_on_gpu && out_on_gpu));
  HEDDLE_TRY(kept);
  if (largest_ != nullptr && residual_ != nullptr) HEDDLE_TRY(residual_->after_call());
  return there_ != nullptr ? there_->outcome() : out_.store();
}

}  // namespace

std::size_t largest_wanted(const CompressedJob& job) {
  const bool selects =
      job.how.method == Compression::Method::top_k || job.how.method == Compression::Method::top_k_sampled;
  return selects ? std::min(job.count, entries_wanted(job)) : 0;
}

Status compressed_allreduce_anywhere(gpu::Gpu& gpu, Communicator& communicator, const CompressedJob& job,
                                     PlacedResidual* residual,
                                     const std::function<Status(bool on_gpu)>& after) {
  OwnPart part(gpu, communicator, job, residual);
  Status prepared = part.prepare();
  return prepared.ok() || !job.agreed ? part.run(std::move(prepared), after) : prepared;
}

}  // namespace heddle
