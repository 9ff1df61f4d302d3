// Where the entries of several streams meet: found once, for sums of other values at the same indices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.hpp"
#include "sparse/stream.hpp"

namespace heddle {

class FoldPlan {
 public:
  // `result`: what fold_sparse made of the streams. 8 bytes for each entry of a stream.
  FoldPlan(std::span<const SparseView> streams, const SparseView& result);

  // The sums of the streams' present values, in their order, with the bits of fold_sparse. `values`: one
  // array for each stream, of its count; `out`: of the result's. Any alignment.
  void sum(std::span<const void* const> values, void* out) const;

 private:
  DType type_;
  std::size_t count_;
  std::vector<std::vector<std::uint64_t>>
      places_;  // by stream: which entry of the result each of its entries goes to
};

}  // namespace heddle
