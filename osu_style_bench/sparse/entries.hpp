// The entries that ranks contribute: any rank can compute those of any other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace heddle::bench {

enum class Pattern {
  uniform,
  clustered,  // runs of 64 to 256 consecutive indices
  identical,  // uniform, the same on all ranks
  skewed      // nine tenths of the entries in the first thousandth of the indices, or as many as fit there
};

// `count` different indices less than `dimension`, rising. 1 <= count <= dimension <= 2^32.
std::vector<std::uint32_t> draw_indices(Pattern pattern, std::uint64_t dimension, std::size_t count,
                                        int rank);

// Never 0, and such that sums over up to 4,096 ranks are exact in any order: 12 random bits.
double value_at(std::uint32_t index, int rank);

}  // namespace heddle::bench
