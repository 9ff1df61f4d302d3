// Vectors whose fold shows what was lost, doubled or put in the wrong order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/dtype.hpp"
#include "engine/kernels/kernels.hpp"

namespace heddle::test {

// A 2x2 matrix over the integers modulo 2^32: associative, not commutative.
struct Matrix {
  std::uint32_t a, b, c, d;
  friend bool operator==(const Matrix&, const Matrix&) = default;
};
inline Matrix operator*(const Matrix& l, const Matrix& r) {
  return {l.a * r.a + l.b * r.c, l.a * r.b + l.b * r.d, l.c * r.a + l.d * r.c, l.c * r.b + l.d * r.d};
}
inline void matrix_fold(void* out, void* out2, const void* const* inputs, unsigned n_inputs,
                        std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    Matrix product{1, 0, 0, 1};
    for (unsigned m = 0; m < n_inputs; ++m) {
      Matrix next{};
      std::memcpy(&next, static_cast<const std::byte*>(inputs[m]) + i * sizeof next, sizeof next);
      product = product * next;
    }
    std::memcpy(static_cast<std::byte*>(out) + i * sizeof product, &product, sizeof product);
    if (out2 != nullptr)
      std::memcpy(static_cast<std::byte*>(out2) + i * sizeof product, &product, sizeof product);
  }
}

inline std::uint64_t hash(std::uint64_t seed, int rank, std::size_t i) {
  std::uint64_t x = seed * 0x9e3779b97f4a7c15ULL +
                    static_cast<std::uint64_t>(rank + 1) * 0xc2b2ae3d27d4eb4fULL +
                    (i + 1) * 0x165667b19e3779f9ULL;
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9ULL;
  return x ^ (x >> 32);
}

// (A vector of std::byte compares one at a time.)
inline bool same_bytes(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

// Kinds of elements; each knows its contribution and what the ranks' fold must be.
enum class Payload : std::uint8_t { integers, floats, matrices };

inline std::size_t payload_bytes(Payload p) {
  return p == Payload::integers ? 8 : p == Payload::floats ? 4 : sizeof(Matrix);
}
inline FoldFn payload_fold(Payload p) {
  switch (p) {
    case Payload::integers:
      return fold_kernel(DType::i64, Op::sum);
    case Payload::floats:
      return fold_kernel(DType::f32, Op::sum);
    case Payload::matrices:
      return &matrix_fold;
  }
  return nullptr;
}
inline Matrix matrix_of(std::uint64_t seed, int rank, std::size_t i) {
  const std::uint64_t h = hash(seed, rank, i);
  return {static_cast<std::uint32_t>(h) | 1, static_cast<std::uint32_t>(h >> 11),
          static_cast<std::uint32_t>(h >> 23), static_cast<std::uint32_t>(h >> 32) | 1};
}

template <typename T, typename Value>
std::vector<std::byte> bytes_of(std::size_t count, Value value) {
  std::vector<std::byte> out(count * sizeof(T));
  for (std::size_t i = 0; i < count; ++i) {
    const T v = value(i);
    std::memcpy(out.data() + i * sizeof(T), &v, sizeof(T));
  }
  return out;
}

inline std::vector<std::byte> contribution_of(Payload p, std::uint64_t seed, int rank, std::size_t count) {
  switch (p) {
    case Payload::integers:
      return bytes_of<std::uint64_t>(count, [&](std::size_t i) { return hash(seed, rank, i); });
    case Payload::floats:
      return bytes_of<float>(
          count, [&](std::size_t i) { return static_cast<float>(hash(seed, rank, i) % 100000) * 1e-3F; });
    case Payload::matrices:
      return bytes_of<Matrix>(count, [&](std::size_t i) { return matrix_of(seed, rank, i); });
  }
  return {};
}

// The exact result, for integers and matrices.
inline std::vector<std::byte> folded(Payload p, std::uint64_t seed, int ranks, std::size_t count) {
  if (p == Payload::matrices) {
    return bytes_of<Matrix>(count, [&](std::size_t i) {
      Matrix product{1, 0, 0, 1};
      for (int r = 0; r < ranks; ++r)
        product = product * matrix_of(seed, r, i);
      return product;
    });
  }
  return bytes_of<std::uint64_t>(count, [&](std::size_t i) {
    std::uint64_t sum = 0;
    for (int r = 0; r < ranks; ++r)
      sum += hash(seed, r, i);
    return sum;
  });
}

// Whether `got` is the sum of floats within rounding; all ranks having the same bits is another check.
inline bool floats_are_close(const std::vector<std::byte>& got, std::uint64_t seed, int ranks,
                             std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    double sum = 0;
    for (int r = 0; r < ranks; ++r)
      sum += static_cast<double>(static_cast<float>(hash(seed, r, i) % 100000) * 1e-3F);
    float value = 0;
    std::memcpy(&value, got.data() + i * sizeof value, sizeof value);
    const double difference = static_cast<double>(value) - sum;
    if (difference > 0.01 || difference < -0.01) return false;
  }
  return true;
}

}  // namespace heddle::test
