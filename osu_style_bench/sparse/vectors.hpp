// The vectors of one density: copies of a rank's entries to send, arrays for results, and what must come out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "heddle/heddle_sparse.h"
#include "sparse/options.hpp"

namespace heddle::bench {

// A sparse vector with its arrays; it stays where it is, since its arrays and `grow` point here.
class SparseArrays {
 public:
  explicit SparseArrays(const SparseOptions& options);
  SparseArrays(const SparseArrays&) = delete;
  SparseArrays& operator=(const SparseArrays&) = delete;

  void set_entries(const std::vector<std::uint32_t>& indices, int rank);
  void make_room(std::size_t entries);

  heddle_sparse vector{};

 private:
  static int grow(heddle_sparse* self, std::size_t entries);

  std::size_t width_;
  std::vector<std::uint32_t> indices_;
  std::vector<std::byte> values_;
};

// Adds a rank's entries to a dense vector of options.dimension elements.
void add_entries(Dtype dtype, const std::vector<std::uint32_t>& indices, int rank, void* dense);

std::size_t count_nonzero(Dtype dtype, const void* dense, std::size_t count);

// Whether the sparse vector keeps its contract and says the same as the dense one.
bool same(const heddle_sparse& sparse, const void* dense);

// The sum of all ranks' entries at this density, as each rank can compute it alone.
std::vector<std::byte> expected_sum(const SparseOptions& options, std::size_t entries, int ranks);

}  // namespace heddle::bench
