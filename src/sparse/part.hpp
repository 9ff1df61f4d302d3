// Parts of a sparse stream, borrowed like the whole.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sparse/stream.hpp"

namespace heddle {

// The first entry whose index is not below `index`; `count` where there is none.
inline std::size_t first_from(const SparseView& view, std::uint64_t index) {
  std::size_t low = 0;
  std::size_t high = view.count;
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (view.index(middle) < index) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Entries [begin, end).
inline SparseView part(const SparseView& view, std::size_t begin, std::size_t end) {
  SparseView part = view;
  part.count = end - begin;
  if (part.count == 0) return part;
  part.indices = static_cast<const std::byte*>(view.indices) + begin * index_size(view.index_type);
  part.values = static_cast<const std::byte*>(view.values) + begin * dtype_size(view.value_type);
  return part;
}

// The entries with indices in [first, end).
inline SparseView part_between(const SparseView& view, std::uint64_t first, std::uint64_t end) {
  return part(view, first_from(view, first), first_from(view, end));
}

}  // namespace heddle
