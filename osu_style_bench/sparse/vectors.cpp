#include "sparse/vectors.hpp"

#include <algorithm>
#include <cstring>
#include <exception>

namespace heddle::bench {
namespace {

template <typename F>
auto with_type(Dtype dtype, F f) {
  return dtype == Dtype::float64 ? f(double{}) : f(float{});
}

template <typename T>
bool same_values(const heddle_sparse& sparse, const T* dense) {
  const auto* indices = static_cast<const std::uint32_t*>(sparse.indices);
  const auto* values = static_cast<const T*>(sparse.values);
  for (std::size_t i = 0; i < sparse.count; ++i) {
    if (indices[i] >= sparse.dimension || (i > 0 && indices[i] <= indices[i - 1])) return false;
    if (values[i] == T{0} || values[i] != dense[indices[i]]) return false;
  }
  return true;
}

}  // namespace

void Array::resize(std::size_t bytes) {
  if (device_ == nullptr) {
    here_.resize(bytes);
    return;
  }
  if (there_ != nullptr) device_->release(there_);
  there_ = bytes > 0 ? device_->allocate(bytes) : nullptr;
}

void Array::put(const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  if (device_ != nullptr) return device_->put(there_, from, bytes);
  std::memcpy(here_.data(), from, bytes);
}

std::vector<std::byte> Array::get(std::size_t bytes) const {
  std::vector<std::byte> copy(bytes);
  if (bytes == 0) return copy;
  if (device_ != nullptr) {
    device_->get(copy.data(), there_, bytes);
  } else {
    std::memcpy(copy.data(), here_.data(), bytes);
  }
  return copy;
}

SparseArrays::SparseArrays(const SparseOptions& options, Device* device)
    : width_(size_of(options.dtype)), indices_(device), values_(device) {
  vector.dimension = options.dimension;
  vector.index_type = HEDDLE_INDEX32;
  vector.value_type = options.dtype == Dtype::float64 ? HEDDLE_FLOAT64 : HEDDLE_FLOAT32;
  vector.grow = grow;
  vector.context = this;
}

void SparseArrays::make_room(std::size_t entries) {
  indices_.resize(entries * sizeof(std::uint32_t));
  values_.resize(entries * width_);
  vector.indices = indices_.data();
  vector.values = values_.data();
  vector.capacity = entries;
}

int SparseArrays::grow(heddle_sparse* self, std::size_t entries) try {
  static_cast<SparseArrays*>(self->context)->make_room(entries);
  return 0;
} catch (const std::exception&) {
  return 1;
}

void SparseArrays::set_entries(const std::vector<std::uint32_t>& indices, int rank) {
  make_room(indices.size());
  indices_.put(indices.data(), indices.size() * sizeof(std::uint32_t));
  with_type(width_ == sizeof(double) ? Dtype::float64 : Dtype::float32, [&]<typename T>(T) {
    std::vector<T> values(indices.size());
    for (std::size_t i = 0; i < indices.size(); ++i)
      values[i] = static_cast<T>(value_at(indices[i], rank));
    values_.put(values.data(), values.size() * sizeof(T));
  });
  vector.count = indices.size();
}

bool SparseArrays::same_as(const void* dense) const {
  std::vector<std::byte> indices = indices_.get(vector.count * sizeof(std::uint32_t));
  std::vector<std::byte> values = values_.get(vector.count * width_);
  heddle_sparse here = vector;
  here.indices = indices.data();
  here.values = values.data();
  return same(here, dense);
}

void add_entries(Dtype dtype, const std::vector<std::uint32_t>& indices, int rank, void* dense) {
  with_type(dtype, [&]<typename T>(T) {
    for (const std::uint32_t index : indices)
      static_cast<T*>(dense)[index] += static_cast<T>(value_at(index, rank));
  });
}

std::size_t count_nonzero(Dtype dtype, const void* dense, std::size_t count) {
  return with_type(dtype, [&]<typename T>(T) {
    const T* const values = static_cast<const T*>(dense);
    const auto nonzero = std::count_if(values, values + count, [](T value) { return value != T{0}; });
    return static_cast<std::size_t>(nonzero);
  });
}

bool same(const heddle_sparse& sparse, const void* dense) {
  const Dtype dtype = sparse.value_type == HEDDLE_FLOAT64 ? Dtype::float64 : Dtype::float32;
  if (sparse.count != count_nonzero(dtype, dense, sparse.dimension)) return false;
  return with_type(dtype,
                   [&]<typename T>(T) { return same_values<T>(sparse, static_cast<const T*>(dense)); });
}

std::vector<std::byte> expected_sum(const SparseOptions& options, std::size_t entries, int ranks) {
  std::vector<std::byte> sum(options.dimension * size_of(options.dtype));
  for (int rank = 0; rank < ranks; ++rank) {
    const auto indices = draw_indices(options.pattern, options.dimension, entries, rank);
    add_entries(options.dtype, indices, rank, sum.data());
  }
  return sum;
}

}  // namespace heddle::bench
