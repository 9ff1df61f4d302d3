// Random streams for tests, and what must come out of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <set>
#include <vector>

#include "sparse/stream.hpp"

namespace heddle::test {

using Bytes = std::vector<std::byte>;

// One of each way to add.
inline constexpr DType kSummedTypes[] = {DType::f16, DType::bf16, DType::f32,
                                         DType::f64, DType::i32,  DType::i64};

// Owns its entries.
struct TestStream {
  std::uint64_t dimension = 0;
  IndexType index_type = IndexType::u32;
  DType value_type = DType::f32;
  std::vector<std::uint64_t> indices;
  Bytes index_bytes;
  Bytes values;

  void add(std::uint64_t index, const void* value) {
    const std::size_t width = index_size(index_type);
    indices.push_back(index);
    index_bytes.resize(index_bytes.size() + width);
    std::memcpy(index_bytes.data() + index_bytes.size() - width, &index, width);
    const auto* bytes = static_cast<const std::byte*>(value);
    values.insert(values.end(), bytes, bytes + dtype_size(value_type));
  }
  SparseView view() const {
    return {dimension, indices.size(), index_type, value_type, index_bytes.data(), values.data()};
  }
  const std::byte* value(std::size_t i) const { return values.data() + i * dtype_size(value_type); }
};

// Where a rank has entries.
enum class Pattern : std::uint8_t { nothing, uniform, clustered, everything };

inline std::set<std::uint64_t> random_indices(Pattern pattern, std::uint64_t dimension, std::size_t about,
                                              std::mt19937_64& random) {
  std::set<std::uint64_t> indices;
  if (pattern == Pattern::nothing || dimension == 0) return indices;
  if (pattern == Pattern::everything) {
    for (std::uint64_t i = 0; i < dimension; ++i)
      indices.insert(i);
  }
  while (pattern == Pattern::uniform && indices.size() < about && indices.size() < dimension / 2)
    indices.insert(random() % dimension);
  for (std::size_t tries = 0; pattern == Pattern::clustered && indices.size() < about && tries < 100;
       ++tries) {
    std::uint64_t at = random() % dimension;
    for (std::uint64_t n = random() % 40; n > 0 && at < dimension; --n, at += 1 + (random() % 8 == 0 ? 1 : 0))
      indices.insert(at);
  }
  return indices;
}

// Values that add up exactly in any order (small integers), or any bits: -0, NaN and infinities among them.
enum class Values : std::uint8_t { exact, any_bits };

inline void random_value(DType type, Values values, std::mt19937_64& random, std::byte* value) {
  const auto number = static_cast<std::int32_t>(random() % 17) - 8;
  if (values == Values::any_bits && random() % 3 != 0) {
    const std::size_t sign_bit = std::min<std::size_t>(dtype_size(type), 8) * 8 - 1;
    const std::uint64_t bits = random() % 4 == 0   ? std::uint64_t{1} << sign_bit  // -0
                               : random() % 8 == 0 ? 0
                                                   : random();
    std::memcpy(value, &bits, dtype_size(type));
    return;
  }
  const auto put = [&](auto v) { std::memcpy(value, &v, sizeof v); };
  switch (type) {
    case DType::f32:
      return put(static_cast<float>(number) / 2);
    case DType::f64:
      return put(static_cast<double>(number) / 2);
    case DType::i32:
      return put(number);
    case DType::i64:
      return put(static_cast<std::int64_t>(number));
    case DType::bf16: {
      const auto f = static_cast<float>(number);
      std::uint32_t bits = 0;
      std::memcpy(&bits, &f, sizeof bits);
      return put(static_cast<std::uint16_t>(bits >> 16));
    }
    default:
      return put(static_cast<std::uint16_t>(number < 0 ? 0xbc00 : number > 0 ? 0x3c00 : 0));  // f16: -1, 1, 0
  }
}

inline TestStream random_stream(Pattern pattern, std::uint64_t dimension, IndexType index_type, DType type,
                                Values values, std::size_t about, std::mt19937_64& random) {
  TestStream stream;
  stream.dimension = dimension;
  stream.index_type = index_type;
  stream.value_type = type;
  for (const std::uint64_t index : random_indices(pattern, dimension, about, random)) {
    std::byte value[8];
    random_value(type, values, random, value);
    stream.add(index, value);
  }
  return stream;
}

// Equal bits, or NaN both.
inline bool same_value(DType type, const std::byte* a, const std::byte* b) {
  if (std::memcmp(a, b, dtype_size(type)) == 0) return true;
  const auto is_nan = [&](const std::byte* bytes) {
    if (type == DType::f32) {
      float x = 0;
      std::memcpy(&x, bytes, sizeof x);
      return std::isnan(x);
    }
    if (type == DType::f64) {
      double x = 0;
      std::memcpy(&x, bytes, sizeof x);
      return std::isnan(x);
    }
    std::uint16_t x = 0;
    std::memcpy(&x, bytes, sizeof x);
    return type == DType::f16 ? (x & 0x7fff) > 0x7c00 : type == DType::bf16 && (x & 0x7fff) > 0x7f80;
  };
  return is_nan(a) && is_nan(b);
}

}  // namespace heddle::test
