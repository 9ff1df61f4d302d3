// Sparse vectors that ranks pass through the C API, and what must come out.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "heddle/heddle_sparse.h"

namespace heddle::testing_ranks {

// Entries with arrays of their own.
struct Vector {
  std::vector<std::uint64_t> indices;
  std::vector<float> values;

  heddle_sparse view(std::uint64_t dimension) {
    heddle_sparse v{};
    v.dimension = dimension;
    v.count = indices.size();
    v.capacity = indices.size();
    v.index_type = HEDDLE_INDEX64;
    v.value_type = HEDDLE_FLOAT32;
    v.indices = indices.data();
    v.values = values.data();
    return v;
  }
};

inline bool message_has(const char* text) {
  return std::string(heddle_last_error()).find(text) != std::string::npos;
}

// Rank r has 10 r to 10 r + 14: neighbours share five.
inline Vector mine_of(int rank) {
  Vector v;
  for (int i = 0; i < 15; ++i) {
    v.indices.push_back(static_cast<std::uint64_t>(10 * rank + i) << 30);
    v.values.push_back(static_cast<float>(i));
  }
  return v;
}
constexpr std::uint64_t kDimension = std::uint64_t{1} << 40;
inline std::size_t result_size(int size) {
  return 10 * static_cast<std::size_t>(size) + 5;
}

inline int grow(heddle_sparse* self, std::size_t entries) {
  auto* v = static_cast<Vector*>(self->context);
  v->indices.resize(entries);
  v->values.resize(entries);
  self->indices = v->indices.data();
  self->values = v->values.data();
  self->capacity = entries;
  return 0;
}

inline void expect_result(const Vector& v, int size) {
  ASSERT_EQ(v.indices.size(), result_size(size));
  for (std::size_t i = 0; i < v.indices.size(); ++i) {
    ASSERT_EQ(v.indices[i], std::uint64_t{i} << 30);
    const std::size_t low = i % 10;
    const float own = i >= result_size(size) - 5 ? 0.0F : static_cast<float>(low);
    const float shared = low < 5 && i >= 10 ? static_cast<float>(low + 10) : 0.0F;
    ASSERT_EQ(v.values[i], own + shared) << i;
  }
}

}  // namespace heddle::testing_ranks
