// Every reduction kernel, looked up once: the hot path takes one load.
#pragma once

#include <cstddef>

#include "base/dtype.hpp"
#include "engine/kernels/kernels.hpp"

namespace heddle {

// Results from this size on are stored past the cache, unless something else has been measured: reading lines
// only to overwrite them is a third of the traffic. (Measured on Sapphire Rapids, two ranks, from 1 MiB on:
// 13 to 19% less time as long as nobody reads the result, 2 to 4% more with a pass over it after each call;
// at 512 KiB nothing and 28%. See docs/performance.md.)
inline constexpr std::size_t kStreamedResultBytes = std::size_t{1} << 20;

class FoldTable {
 public:
  FoldTable() {
    for (int type = 0; type < kDTypeCount; ++type) {
      for (int op = 0; op < kOpCount; ++op) {
        const auto t = static_cast<DType>(type);
        const auto o = static_cast<Op>(op);
        fold_[0][type][op] = fold_kernel(t, o);
        fold_[1][type][op] = fold_kernel(t, o, Stores::streaming);
      }
    }
  }

  // For a vector of `count` elements; null where the pair has no meaning.
  FoldFn of(DType type, Op op, std::size_t count) const {
    return either(type, op, count * dtype_size(type) >= streamed_from_);
  }
  FoldFn either(DType type, Op op, bool streamed) const {
    return fold_[streamed ? 1 : 0][static_cast<int>(type)][static_cast<int>(op)];
  }
  // From this many bytes on.
  void stream_from(std::size_t bytes) { streamed_from_ = bytes; }

 private:
  std::size_t streamed_from_ = kStreamedResultBytes;
  FoldFn fold_[2][kDTypeCount][kOpCount];
};

}  // namespace heddle
