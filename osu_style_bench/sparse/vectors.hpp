// The vectors of one density: copies of a rank's entries to send, arrays for results, and what must come out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/device.hpp"
#include "heddle/heddle_sparse.h"
#include "sparse/options.hpp"

namespace heddle::bench {

// Memory for an array: the program's own, or on a GPU.
class Array {
 public:
  explicit Array(Device* device) : device_(device) {}
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { resize(0); }
  // What it held is lost.
  void resize(std::size_t bytes);
  void* data() { return device_ != nullptr ? there_ : here_.data(); }
  void put(const void* from, std::size_t bytes);
  std::vector<std::byte> get(std::size_t bytes) const;

 private:
  Device* device_;  // null: the program's own
  void* there_ = nullptr;
  std::vector<std::byte> here_;
};

// A sparse vector with its arrays; it stays where it is, since its arrays and `grow` point here.
class SparseArrays {
 public:
  // `device` may be null, and outlives this.
  SparseArrays(const SparseOptions& options, Device* device);
  SparseArrays(const SparseArrays&) = delete;
  SparseArrays& operator=(const SparseArrays&) = delete;

  void set_entries(const std::vector<std::uint32_t>& indices, int rank);
  void make_room(std::size_t entries);
  // same(), wherever the arrays lie.
  bool same_as(const void* dense) const;

  heddle_sparse vector{};

 private:
  static int grow(heddle_sparse* self, std::size_t entries);

  std::size_t width_;
  Array indices_;
  Array values_;
};

// Adds a rank's entries to a dense vector of options.dimension elements.
void add_entries(Dtype dtype, const std::vector<std::uint32_t>& indices, int rank, void* dense);

std::size_t count_nonzero(Dtype dtype, const void* dense, std::size_t count);

// Whether the sparse vector, whose arrays the host can read, keeps its contract and says the same as the
// dense one.
bool same(const heddle_sparse& sparse, const void* dense);

// The sum of all ranks' entries at this density, as each rank can compute it alone.
std::vector<std::byte> expected_sum(const SparseOptions& options, std::size_t entries, int ranks);

}  // namespace heddle::bench
