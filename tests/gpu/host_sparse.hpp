// What the kernels of sparse vectors are compared with. As for folds (host_fold.hpp), two files have it: the
// library's own, and plain loops for machines without what that needs, which the tests on the double compare
// with each other by way of the kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/dtype.hpp"
#include "gpu/entries.hpp"
#include "gpu/quantiser.hpp"

namespace heddle::test {

struct HostEntries {
  std::vector<std::uint64_t> indices;
  std::vector<std::uint8_t> values;  // as in memory
};

HostEntries host_nonzero(DType type, const void* values, std::size_t n);
// From the magnitude on that has these bits.
HostEntries host_magnitudes(const float* values, std::size_t n, std::uint32_t least);
HostEntries host_top_k(const float* values, std::size_t n, std::size_t k);
// The sum, minimum or maximum of two, each of them with rising indices. An entry that one lacks is 0 in a
// sum, and does not count else.
HostEntries host_merge(DType type, Op op, const HostEntries& first, const HostEntries& second);

// Codes of gradient + residual, of which the first value has this position, and what they leave out in the
// residual's place; and their values. Null: there is no residual.
struct HostCodes {
  std::vector<std::uint8_t> codes;
  std::vector<float> decoded;
};
HostCodes host_quantise(const gpu::Quantiser& how, std::uint64_t position, const std::vector<float>& gradient,
                        std::vector<float>* residual);

// Codes of sorted indices in `range`, as bits or as deltas, and what these stand for: so many as *indices
// has. False: they are damaged.
enum class IndexCode : std::uint8_t { bitmap, delta };
std::vector<std::uint8_t> host_pack(IndexCode code, const std::vector<std::uint64_t>& indices,
                                    const gpu::IndexRange& range, bool wide);
bool host_unpack(IndexCode code, const std::vector<std::uint8_t>& codes, const gpu::IndexRange& range,
                 bool wide, std::vector<std::uint64_t>* indices);
const char* host_sparse_name();

}  // namespace heddle::test
