// What the ranks of a node do on their GPUs in one allreduce of dense vectors through a codec: steps as in
// device_work.hpp.
//
// Each rank codes its vector, with what was left out before, to where the others reach it, a piece after the
// other. Then each sets its result to the sum of what everybody's codes decode as, its own too, in the order
// of ranks: all have the same bits, and every value was coded once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.hpp"
#include "compress/codec.hpp"
#include "device/device_entries.hpp"
#include "device/device_work.hpp"
#include "device/placed_residual.hpp"
#include "gpu/quantiser.hpp"

namespace heddle {

struct CodedJob {
  const float* in;
  float* out;  // may be `in`
  std::size_t n;
  gpu::Quantiser how;          // with a seed of this rank's own
  PlacedResidual* residual;    // added before, and what coding leaves out is kept in it; null: none
  float* left_out = nullptr;   // where it lies on the GPU
  std::byte* codes = nullptr;  // of this rank, for all of the vector, where all share one context
};

// 0 bits: there are no kernels for it.
gpu::Quantiser quantiser_of(const CodecSettings& how);

class CodedSum final : public AskedWork {
 public:
  CodedSum(const EntriesWorker& worker, const CodedJob& job, std::uint64_t asked);

  // Of n values, that go at once; 0: the scratch is too small for the codes of one bucket.
  static std::size_t values_at_once(const ScratchLayout& layout, const gpu::Quantiser& how, std::size_t n);

  // After the call: whether all codes were such as encoders write, the same on all ranks.
  bool is_valid() const { return bad_ == 0; }

  std::span<std::uint64_t> later_words(std::size_t k) override;
  Status step(std::size_t k) override;
  std::size_t steps() const override { return pieces_ + 1; }

 private:
  std::size_t begin_of(std::size_t piece) const { return piece * room_; }
  std::size_t count_of(std::size_t piece) const { return std::min(room_, job_.n - begin_of(piece)); }
  std::byte* codes_of(int rank, std::size_t piece) const;
  Status code(std::size_t piece);
  Status sum(std::size_t piece);

  const EntriesWorker worker_;
  const CodedJob job_;
  const std::size_t room_;  // values of a piece
  const std::size_t pieces_;
  std::uint64_t bad_ = 0;
};

}  // namespace heddle
