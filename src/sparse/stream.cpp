#include "sparse/stream.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/kernels/kernels.hpp"

namespace heddle {
namespace {

Status out_of_range(std::size_t entry, std::uint64_t index, std::uint64_t dimension) {
  return Status(Code::invalid_argument, "index " + std::to_string(index) + " of entry " +
                                            std::to_string(entry) + " is not less than the dimension, " +
                                            std::to_string(dimension));
}

struct Entry {
  std::uint64_t index;
  std::size_t place;  // where it stood
};

template <typename Index>
void store_index(void* indices, std::size_t i, std::uint64_t index) {
  const auto narrow = static_cast<Index>(index);
  std::memcpy(static_cast<std::byte*>(indices) + i * sizeof narrow, &narrow, sizeof narrow);
}

// Whether the indices rise and stay below the dimension, without looking where they do not: at the speed of
// memory.
template <typename Index>
bool keeps_order(const SparseView& view) {
  const auto* bytes = static_cast<const std::byte*>(view.indices);
  const auto at = [&](std::size_t i) {
    Index index;
    std::memcpy(&index, bytes + i * sizeof index, sizeof index);
    return index;
  };
  unsigned broken = 0;
  for (std::size_t i = 1; i < view.count; ++i)
    broken |= at(i - 1) < at(i) ? 0U : 1U;
  return broken == 0 && (view.count == 0 || at(view.count - 1) < view.dimension);
}

}  // namespace

bool is_sparse_value(DType type) {
  return type == DType::f16 || type == DType::bf16 || type == DType::f32 || type == DType::f64 ||
         type == DType::i32 || type == DType::i64;
}

Status check_sparse(const SparseView& view) {
  if (!is_sparse_value(view.value_type))
    return Status(Code::invalid_argument,
                  std::string(dtype_name(view.value_type)) + " is not a type of sparse values");
  // Before any of them is read: a count that nobody set may be anything.
  if (view.count > view.dimension)
    return Status(Code::invalid_argument, "count " + std::to_string(view.count) +
                                              " is more than the indices below the dimension, " +
                                              std::to_string(view.dimension) + ", of which none comes twice");
  const bool narrow = view.index_type == IndexType::u32;
  if (narrow ? keeps_order<std::uint32_t>(view) : keeps_order<std::uint64_t>(view)) return {};
  for (std::size_t i = 0; i < view.count; ++i) {
    const std::uint64_t index = view.index(i);
    if (index >= view.dimension) return out_of_range(i, index, view.dimension);
    if (i == 0 || view.index(i - 1) < index) continue;
    return Status(Code::invalid_argument, "index " + std::to_string(index) + " of entry " +
                                              std::to_string(i) + " is not greater than that before it, " +
                                              std::to_string(view.index(i - 1)) +
                                              ": sort the entries (heddle_sparse_sort)");
  }
  return {};
}

Status sort_sparse(std::uint64_t dimension, IndexType index_type, void* indices, DType value_type,
                   void* values, std::size_t* count) {
  const SparseView given{dimension, *count, index_type, value_type, indices, values};
  if (!is_sparse_value(value_type)) return check_sparse(given);
  if (*count > static_cast<std::size_t>(PTRDIFF_MAX) / sizeof(Entry))
    return Status(Code::invalid_argument,
                  "count " + std::to_string(*count) + " is more entries than memory can hold");
  std::vector<Entry> entries(*count);
  bool sorted = true;
  for (std::size_t i = 0; i < *count; ++i) {
    entries[i] = {given.index(i), i};
    if (entries[i].index >= dimension) return out_of_range(i, entries[i].index, dimension);
    sorted = sorted && (i == 0 || entries[i - 1].index < entries[i].index);
  }
  if (sorted) return {};
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.index != b.index ? a.index < b.index : a.place < b.place;
  });
  const std::size_t width = dtype_size(value_type);
  const auto* first = static_cast<const std::byte*>(values);
  const std::vector<std::byte> old(first, first + *count * width);
  const FoldFn sum = fold_kernel(value_type, Op::sum);
  std::vector<const void*> equal;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < entries.size(); ++kept) {
    equal.clear();
    const std::uint64_t index = entries[i].index;
    for (; i < entries.size() && entries[i].index == index; ++i)
      equal.push_back(old.data() + entries[i].place * width);
    std::byte* value = static_cast<std::byte*>(values) + kept * width;
    if (equal.size() == 1) {
      std::memcpy(value, equal[0], width);
    } else {
      sum(value, nullptr, equal.data(), static_cast<unsigned>(equal.size()), 1);
    }
    if (index_type == IndexType::u32) {
      store_index<std::uint32_t>(indices, kept, index);
    } else {
      store_index<std::uint64_t>(indices, kept, index);
    }
  }
  *count = kept;
  return {};
}

}  // namespace heddle
