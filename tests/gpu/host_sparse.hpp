// What the kernels of sparse vectors are compared with. As for folds (host_fold.hpp), two files have it: the library's own, and plain loops
// for machines without what that needs, which the tests on the double compare with each other by way of the kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/dtype.hpp"

namespace heddle::test {

struct HostEntries {
  std::vector<std::uint64_t> indices;
  std::vector<std::uint8_t> values;  // as in memory
};

HostEntries host_nonzero(DType type, const void* values, std::size_t n);
// From the magnitude on that has these bits.
HostEntries host_magnitudes(const float* values, std::size_t n, std::uint32_t least);
HostEntries host_top_k(const float* values, std::size_t n, std::size_t k);
// The sum of two, each of them with rising indices. An entry that one lacks is 0.
HostEntries host_merge(DType type, const HostEntries& first, const HostEntries& second);

// Codes of gradient + residual, of which the first value has this position, and what they leave out in the residual's place; and their values. Null: there is no residual.
struct HostCodes {
  std::vector<std::uint8_t> codes;
  std::vector<float> decoded;
};
HostCodes host_quantise(unsigned bits, std::uint64_t bucket, std::uint64_t seed, std::uint64_t position,
                        const std::vector<float>& gradient, std::vector<float>* residual);
const char* host_sparse_name();

}  // namespace heddle::test
