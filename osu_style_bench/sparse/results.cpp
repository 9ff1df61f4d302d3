#include "sparse/results.hpp"

#include <algorithm>

namespace heddle::bench {

double pair_bytes_of(const std::string& algorithm, int ranks, std::size_t entries, std::size_t result_entries,
                     std::size_t width) {
  const auto own = static_cast<double>(entries);
  const auto result = static_cast<double>(result_entries);
  double sent = 0;
  if (algorithm == "recursive_doubling") {
    // Sums of 1, 2, 4, ... ranks' vectors, taken to be as large as they can be: exact for two ranks, and
    // where vectors overlap wholly or not at all.
    for (int summed = 1; summed < ranks; summed *= 2)
      sent += std::min(summed * own, result);
  } else {
    // Those of its entries that others sum, and its share of the result to each of the others; regions hold
    // equal shares.
    sent = (own + result) * (ranks - 1) / ranks;
  }
  return sent * static_cast<double>(sizeof(std::uint32_t) + width);
}

}  // namespace heddle::bench
