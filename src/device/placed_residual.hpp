// A residual (src/compress/residual.hpp) that lies where it is used: in the host's memory, or on a GPU from
// one call to the next.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "base/overlap.hpp"
#include "base/status.hpp"
#include "compress/residual.hpp"
#include "gpu/sparse_link.hpp"

namespace heddle {

// One thread at a time.
class PlacedResidual {
 public:
  explicit PlacedResidual(Residual residual) : residual_(std::move(residual)) {}

  std::size_t size() const { return residual_.size(); }
  // Whether these bytes are some of its values' in the host's memory, which show() has told the address of.
  bool overlaps(const void* memory, std::size_t bytes) const {
    return overlap(memory, bytes, residual_.values().data(), residual_.values().size_bytes());
  }

  // The residual in the host's memory, which is brought back where it lies on a GPU. A failure is CUDA's, and
  // changes nothing.
  Result<Residual*> on_host();
  // The same for a caller who keeps the address of the values, and may read and write them at any time: they
  // are there after every call.
  Result<Residual*> show();

  // The values in the context of `link`, copied there where they were elsewhere. Those in the host's memory
  // count until changes_on_gpu(). They stay at that address until on_host(), or the end.
  Result<float*> on_gpu(gpu::SparseLink& sparse, const gpu::Link& link);
  void changes_on_gpu() { is_on_gpu_ = true; }
  // After each call by the GPU.
  Status after_call() { return is_shown_ ? on_host().status() : Status(); }

 private:
  Residual residual_;
  std::unique_ptr<gpu::KeptMemory> there_;  // null where size() is 0 as well
  bool is_on_gpu_ = false;                  // those values count, not the host's
  bool is_shown_ = false;
};

}  // namespace heddle
