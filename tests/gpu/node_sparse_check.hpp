// Sums of sparse vectors, and of the largest entries of dense ones, among the ranks of node_check.
#pragma once

#include "node_ranks.hpp"

namespace heddle::test {

// On ranks that the GPUs serve already, against what the host makes of the same numbers, bit for bit; false: it is wrong, and says so.
bool check_sparse(NodeRank& rank);

}  // namespace heddle::test
