// Sparse vectors for tests of ranks that are threads (node_sparse_test.cpp, node_merge_test.cpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <random>
#include <vector>

#include "cuda_memory.hpp"
#include "heddle/heddle_sparse.h"
#include "node_ranks_of_threads.hpp"

namespace heddle::test {

using Bytes = std::vector<std::uint8_t>;

inline std::size_t width_of(heddle_dtype type) {
  if (type == HEDDLE_FLOAT16 || type == HEDDLE_BFLOAT16) return 2;
  return type == HEDDLE_FLOAT32 || type == HEDDLE_INT32 ? 4 : 8;
}

// Calm numbers, none of which is 0.
template <typename T>
void append(Bytes& bytes, T value) {
  const std::size_t at = bytes.size();
  bytes.resize(at + sizeof value);
  std::memcpy(&bytes[at], &value, sizeof value);
}
inline void append(Bytes& bytes, heddle_dtype type, unsigned drawn) {
  const int number = static_cast<int>(drawn % 20'001) - 10'000;
  if (type == HEDDLE_FLOAT16) append(bytes, static_cast<std::uint16_t>(0x3400 | (drawn & 0x8BFF)));
  if (type == HEDDLE_BFLOAT16) append(bytes, static_cast<std::uint16_t>(0x3F00 | (drawn & 0x80FF)));
  if (type == HEDDLE_FLOAT32) append(bytes, (static_cast<float>(number) + 0.5F) / 3);
  if (type == HEDDLE_FLOAT64) append(bytes, (number + 0.5) / 3);
  if (type == HEDDLE_INT32) append(bytes, std::int32_t{number});
  if (type == HEDDLE_INT64) append(bytes, std::int64_t{number} << 33);
}

// Entries in the host's memory, the same ones again for the same arguments.
struct Entries {
  Entries(std::uint64_t dimension, std::size_t count, heddle_dtype value_type, bool wide, int rank)
      : type(value_type), is_wide(wide) {
    std::mt19937 random(static_cast<unsigned>(count + dimension) + 77U * static_cast<unsigned>(rank));
    std::vector<std::uint64_t> all(dimension);
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i] = i;
    std::vector<std::uint64_t> chosen;
    std::sample(all.begin(), all.end(), std::back_inserter(chosen), count, random);
    for (const std::uint64_t index : chosen) {
      if (wide) append(indices, index);
      if (!wide) append(indices, static_cast<std::uint32_t>(index));
      append(values, type, static_cast<unsigned>(random()));
    }
    number = chosen.size();
    size = dimension;
  }
  heddle_sparse vector(void* at_indices, void* at_values) const {
    heddle_sparse vector = {};
    vector.dimension = size;
    vector.count = number;
    vector.index_type = is_wide ? HEDDLE_INDEX64 : HEDDLE_INDEX32;
    vector.value_type = type;
    vector.indices = at_indices;
    vector.values = at_values;
    return vector;
  }
  heddle_sparse vector() { return vector(indices.data(), values.data()); }

  heddle_dtype type;
  bool is_wide;
  Bytes indices;
  Bytes values;
  std::size_t number = 0;
  std::uint64_t size = 0;
};

inline std::size_t index_bytes(bool wide) {
  return wide ? 8 : 4;
}

// Arrays on a GPU.
struct Arrays {
  Arrays(const Entries& like, std::size_t capacity, int rank, int device)
      : indices(*driver, kind_of(rank, 0), capacity * index_bytes(like.is_wide), device),
        values(*driver, kind_of(rank, 1), capacity * width_of(like.type), device),
        room(capacity) {}
  // With the entries themselves in them.
  Arrays(const Entries& entries, int rank, int device) : Arrays(entries, entries.number, rank, device) {
    put(entries);
  }
  void put(const Entries& entries) const {
    indices.put(entries.indices.data(), entries.indices.size());
    values.put(entries.values.data(), entries.values.size());
  }
  heddle_sparse in(const Entries& like) const { return like.vector(indices.data(), values.data()); }
  heddle_sparse out() const {
    heddle_sparse out = {};
    out.indices = indices.data();
    out.values = values.data();
    out.capacity = room;
    return out;
  }
  const TestMemory indices;
  const TestMemory values;
  std::size_t room;
};

// From a device, or from the host where `device` is negative.
inline Bytes fetch(const void* from, std::size_t bytes, int device) {
  Bytes got(bytes);
  if (bytes == 0) return got;
  if (device < 0) {
    std::memcpy(got.data(), from, bytes);
    return got;
  }
  const CUcontext before = driver->current();
  driver->set_current(driver->primary(device));
  driver->call<PFN_cuMemcpyDtoH_v3020>("cuMemcpyDtoH_v2", got.data(), reinterpret_cast<CUdeviceptr>(from),
                                       bytes);
  driver->set_current(before);
  return got;
}

}  // namespace heddle::test
