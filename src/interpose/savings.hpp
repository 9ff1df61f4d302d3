// What an unmodified program's allreduces can save on the way between nodes: sums of mostly zeros are
// exchanged as their entries, without loss; and, where HEDDLE_COMPRESS asks for it, sums of gradients are
// compressed.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/config.hpp"
#include "base/log.hpp"
#include "comm/communicator.hpp"
#include "device/placed_residual.hpp"
#include "gpu/gpu.hpp"
#include "interpose/residuals.hpp"

namespace heddle {

// Of one communicator. All ranks make the same calls, and decide alike.
class Savings {
 public:
  // Null where there is nothing to save: all ranks on one node, or settings that say so. Borrows the
  // communicator.
  static std::unique_ptr<Savings> make(const Config& config, Communicator& communicator, const Log& log);

  // Of each sum: whether it may go by entries, or is what HEDDLE_COMPRESS says; or neither.
  bool looks(DType type, Op op, std::size_t bytes) const {
    return op == Op::sum && bytes >= least_bytes_ && is_looked_at(type, bytes) && !compresses(type, bytes);
  }
  bool loses(DType type, Op op, std::size_t bytes) const {
    return op == Op::sum && bytes >= least_bytes_ && compresses(type, bytes);
  }

  // Once in each call of the first kind, before anything else of it that other ranks take part in: whether
  // this one is looked at. Then by_entries() follows.
  bool wants_look(std::size_t count);
  // Whether it went by entries; if not nothing has happened, and it goes on. A failure is all ranks', and
  // ends the call.
  Result<bool> by_entries(const MostlyZeroJob& job);
  // Of the second kind. What was lost of a vector is added to the next one of the same `key` and length:
  // where the caller keeps it.
  Status compress(const void* in, void* out, std::size_t count, DType type, const void* key);
  // The same of float32 anywhere, with the GPUs' part done by them (comm/local_compressed.hpp).
  Status compress_anywhere(gpu::Gpu& gpu, const float* in, float* out, std::size_t count, const void* key,
                           const std::function<Status(bool on_gpu)>& after);

 private:
  // Of the sizes between two powers of two: after a vector that was not worth it so many calls go by without
  // a look, and twice as many each time.
  struct Backoff {
    std::uint32_t left = 0;
    std::uint32_t next = 1;
  };

  Savings(const Config& config, Communicator& communicator, const Log& log)
      : config_(config), communicator_(communicator), residuals_(config.compress_memory, log) {}

  bool is_looked_at(DType type, std::size_t bytes) const;
  bool compresses(DType type, std::size_t bytes) const;
  Backoff& backoff_of(std::size_t count) { return backoff_[static_cast<std::size_t>(std::bit_width(count))]; }
  CompressedJob job_of(const float* in, float* out, std::size_t count) const;
  PlacedResidual* residual_of(const void* key, std::size_t count);

  Config config_;
  Communicator& communicator_;
  bool lossy_ = false;
  Compression compression_;
  std::size_t least_bytes_ = 0;
  std::array<Backoff, 65> backoff_;
  Residuals residuals_;
  std::vector<float> in_;  // of a float64 vector
  std::vector<float> out_;
};

}  // namespace heddle
