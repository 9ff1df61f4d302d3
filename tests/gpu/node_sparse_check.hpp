// Sums of sparse vectors, and of dense ones by their largest entries or through a codec, among the ranks of
// node_check.
#pragma once

#include <cstddef>
#include <vector>

#include "node_ranks.hpp"

namespace heddle::test {

// On ranks that the GPUs serve already, against what the host makes of the same numbers, bit for bit; false:
// it is wrong, and says so.
bool check_sparse(NodeRank& rank);
bool check_codes(NodeRank& rank);
// On ranks that share a context: codes that no encoder wrote are told to all.
bool check_overwritten_codes(NodeRank& rank);

// What these have in common: whether the GPUs served a sum of `n`, rightly; and the same numbers on every
// rank, which knows what the others gave.
bool say(const NodeRank& rank, const char* what, std::size_t n, const Result<bool>& served, bool same);
bool holds(const TestMemory& memory, const std::vector<float>& wanted);
std::vector<float> gradient_of(int rank, std::size_t n, int step);

}  // namespace heddle::test
