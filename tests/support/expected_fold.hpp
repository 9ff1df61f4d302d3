// What ranks contribute to an allreduce of the public API, and what must come of it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "heddle/heddle.h"

namespace heddle::testing_ranks {

// Of rank `rank` at place `i`: small whole numbers, so that every type holds every result exactly.
inline std::int16_t value(int rank, std::size_t i) {
  return static_cast<std::int16_t>(static_cast<int>((static_cast<std::size_t>(rank) * 3 + i) % 5) - 1);
}

// Their reduction over `size` ranks at place `i`.
template <typename T>
T expected(heddle_op op, int size, std::size_t i) {
  T result = static_cast<T>(value(0, i));
  for (int r = 1; r < size; ++r) {
    const T next = static_cast<T>(value(r, i));
    if (op == HEDDLE_SUM) result = static_cast<T>(result + next);
    if (op == HEDDLE_PROD) result = static_cast<T>(result * next);
    if constexpr (std::is_arithmetic_v<T>) {
      if (op == HEDDLE_MIN) result = std::min(result, next);
      if (op == HEDDLE_MAX) result = std::max(result, next);
    }
    if constexpr (std::is_integral_v<T>) {
      if (op == HEDDLE_BAND) result = static_cast<T>(result & next);
      if (op == HEDDLE_BOR) result = static_cast<T>(result | next);
      if (op == HEDDLE_BXOR) result = static_cast<T>(result ^ next);
    }
  }
  return result;
}

}  // namespace heddle::testing_ranks
