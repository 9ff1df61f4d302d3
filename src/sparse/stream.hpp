// A sparse stream: the entries of a vector that are there, as sorted indices and their values in two arrays.
// (C. Renggli, S. Ashkboos, M. Aghagolzadeh, D. Alistarh, T. Hoefler, "SparCML: High-Performance Sparse
// Communication for Machine Learning", SC'19; two arrays instead of pairs, which padding makes larger than
// they need be.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/dtype.hpp"
#include "base/status.hpp"

namespace heddle {

enum class IndexType : std::uint8_t { u32, u64 };
constexpr std::size_t index_size(IndexType type) {
  return type == IndexType::u32 ? 4 : 8;
}

// f16, bf16, f32, f64, i32 and i64.
bool is_sparse_value(DType type);

// Borrowed. By contract indices rise strictly and are less than the dimension. Neither array needs alignment;
// `count` 0: both may be null.
struct SparseView {
  std::uint64_t dimension = 0;
  std::size_t count = 0;
  IndexType index_type = IndexType::u32;
  DType value_type = DType::f32;
  const void* indices = nullptr;
  const void* values = nullptr;

  std::uint64_t index(std::size_t i) const {
    if (index_type == IndexType::u32) {
      std::uint32_t narrow = 0;
      std::memcpy(&narrow, static_cast<const std::byte*>(indices) + i * sizeof narrow, sizeof narrow);
      return narrow;
    }
    std::uint64_t wide = 0;
    std::memcpy(&wide, static_cast<const std::byte*>(indices) + i * sizeof wide, sizeof wide);
    return wide;
  }
};

// Whether the contract holds; the status names the first entry that breaks it.
Status check_sparse(const SparseView& view);

// Brings `count` entries in any order into the contract's form, in place: sorted, entries of equal index
// summed in the order in which they stood (f16 and bf16 in f32, rounded once). *count becomes the number of
// different indices. Takes memory for a second copy of the entries. `invalid_argument`: an index is not less
// than the dimension (it is named; nothing is changed), or the value type is not is_sparse_value().
Status sort_sparse(std::uint64_t dimension, IndexType index_type, void* indices, DType value_type,
                   void* values, std::size_t* count);

}  // namespace heddle
