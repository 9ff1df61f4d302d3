#include "device/placed_residual.hpp"

namespace heddle {

Result<Residual*> PlacedResidual::on_host() {
  if (is_on_gpu_) HEDDLE_TRY(there_->get(residual_.values().data()));
  is_on_gpu_ = false;
  // Whoever looks at the values after each call has them copied each time, and need not allocate each time as
  // well.
  if (!is_shown_) there_.reset();
  return &residual_;
}

Result<Residual*> PlacedResidual::show() {
  is_shown_ = true;
  return on_host();
}

Result<float*> PlacedResidual::on_gpu(gpu::SparseLink& sparse, const gpu::Link& link) {
  if (!is_on_gpu_ || !there_->is_for(link)) {
    if (const Result<Residual*> home = on_host(); !home.ok()) return home.status();
    if (there_ == nullptr || !there_->is_for(link)) {
      Result<std::unique_ptr<gpu::KeptMemory>> kept = sparse.keep(size() * sizeof(float));
      if (!kept.ok()) return kept.status();
      there_ = std::move(kept).value();
    }
    if (Status put = there_->put(residual_.values().data()); !put.ok()) return put;
  }
  return static_cast<float*>(there_->at());
}

}  // namespace heddle
