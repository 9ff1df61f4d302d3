// Gradients of ranks, and their sums.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "comm/communicator.hpp"

namespace heddle::test {

using Vector = std::vector<float>;

inline Vector gradient(int rank, std::uint64_t round, std::size_t count) {
  std::mt19937_64 random(static_cast<std::uint64_t>(rank) * 1000 + round);
  std::normal_distribution<float> normal(0, 1);
  Vector v(count);
  for (float& x : v)
    x = normal(random);
  return v;
}
inline Vector sum_of(int ranks, std::uint64_t round, std::size_t count) {
  Vector sum(count);
  for (int r = 0; r < ranks; ++r) {
    const Vector v = gradient(r, round, count);
    for (std::size_t i = 0; i < count; ++i)
      sum[i] += v[i];
  }
  return sum;
}
inline float largest(const Vector& v) {
  float most = 0;
  for (const float x : v)
    most = std::max(most, std::abs(x));
  return most;
}

// Every rank must have the bits of rank 0.
inline void expect_same_everywhere(Communicator& comm, const Vector& mine) {
  Vector first = mine;
  ASSERT_TRUE(comm.bcast(first.data(), first.size() * sizeof(float), 0).ok());
  ASSERT_TRUE(first.empty() || std::memcmp(first.data(), mine.data(), first.size() * sizeof(float)) == 0);
}

}  // namespace heddle::test
