// What the tests of vectors in GPU memory try.
#pragma once

#include <cstddef>

#include "local_ranks.hpp"
#include "node_entries.hpp"

namespace heddle::test {

inline constexpr heddle_dtype kTypes[] = {HEDDLE_FLOAT16, HEDDLE_BFLOAT16, HEDDLE_FLOAT32,
                                          HEDDLE_FLOAT64, HEDDLE_INT32,    HEDDLE_INT64};

// Elements, so that the vector is long enough for GPUs.
inline std::size_t count_of(heddle_dtype type) {
  return heddle::LocalGpu::kFrom / width_of(type) + 77;
}

}  // namespace heddle::test
