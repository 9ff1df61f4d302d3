// Arrays in memory of any kind, and what ranks have in them, for tests of the C API on the double of CUDA's
// driver.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "../api/ranks.hpp"
#include "cuda_memory.hpp"
#include "heddle/heddle_sparse.h"

namespace heddle::test {

inline const TestDriver* driver = nullptr;  // set by main()

inline Memory kind_of(int rank, int shift) {
  return kMemories[static_cast<std::size_t>(rank + shift) % 6];
}

// An array in memory of some kind.
template <typename T>
class Array {
 public:
  Array(Memory kind, std::size_t count, int device = 0)
      : memory_(std::make_unique<TestMemory>(*driver, kind, count * sizeof(T), device)), count_(count) {}
  Array(Memory kind, const std::vector<T>& values, int device = 0) : Array(kind, values.size(), device) {
    set(values);
  }
  T* data() const { return memory_->template as<T>(); }
  void set(const std::vector<T>& values) const { memory_->put(values.data(), values.size() * sizeof(T)); }
  std::vector<T> get() const {
    std::vector<T> values(count_);
    memory_->get(values.data(), count_ * sizeof(T));
    return values;
  }

 private:
  std::unique_ptr<TestMemory> memory_;
  std::size_t count_;
};

inline std::vector<float> values_of(int rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(static_cast<int>(i % 17) - rank) / 8;
  return values;
}

inline std::vector<float> sum_of(int ranks, std::size_t count) {
  std::vector<float> sum(count);
  for (int r = 0; r < ranks; ++r) {
    const std::vector<float> one = values_of(r, count);
    for (std::size_t i = 0; i < count; ++i)
      sum[i] += one[i];
  }
  return sum;
}

struct Entries {
  std::vector<std::uint32_t> indices;
  std::vector<float> values;
};

inline Entries entries_of(int rank) {
  Entries all;
  for (std::uint32_t i = 0; i < 300; ++i) {
    all.indices.push_back(i * 7 + static_cast<std::uint32_t>(rank));
    all.values.push_back(static_cast<float>(i % 5) - 2);
  }
  return all;
}

inline heddle_sparse sparse(std::size_t count, void* indices, void* values, std::size_t capacity) {
  heddle_sparse vector = {};
  vector.dimension = 5000;
  vector.count = count;
  vector.index_type = HEDDLE_INDEX32;
  vector.value_type = HEDDLE_FLOAT32;
  vector.indices = indices;
  vector.values = values;
  vector.capacity = capacity;
  return vector;
}

}  // namespace heddle::test

#define OK(call) ASSERT_EQ(call, HEDDLE_OK) << heddle_last_error()
