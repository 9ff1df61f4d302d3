// Codes of several vectors (quantise.hpp) into the sum of what they stand for, in one pass: all codes are read, and each value is written once.
#pragma once

#include <cstdint>

#include "gpu/kernels/block.hpp"
#include "gpu/kernels/operations.hpp"
#include "gpu/kernels/quantise.hpp"
#include "gpu/kernels/sparse_arguments.hpp"

namespace heddle::gpu::kernels {

// The sum of a group of all inputs, in their order; `bucket`: where its bucket begins in each of them. The codes of the next input come while one is added. Whether no
// encoder wrote some of it.
template <class Code>
HEDDLE_DEVICE bool sum_group(const DequantiseArguments& a, std::uint64_t bucket, std::uint64_t at,
                             std::uint64_t left, Group& sum) {
  typename Code::Coded next = Code::load_coded(a.codes[0] + bucket, at, left);
  bool is_bad = false;
  HEDDLE_NOT_UNROLLED
  for (unsigned k = 0; k < a.n_inputs; ++k) {
    const typename Code::Coded coded = next;
    if (k + 1 < a.n_inputs) next = Code::load_coded(a.codes[k + 1] + bucket, at, left);
    Group group;
    if (Code::decode(coded, left, group)) is_bad = true;
    HEDDLE_UNROLLED
    for (unsigned i = 0; i < 4; ++i)
      sum.values[i] = k == 0 ? group.values[i] : FloatSum::apply(sum.values[i], group.values[i]);
  }
  return is_bad;
}

// A group is a thread's.
template <class Code>
HEDDLE_DEVICE void dequantise_share(const DequantiseArguments& a, const Thread& thread) {
  const Buckets<Code> buckets(a.count, a.bucket);
  const unsigned at_once = buckets_at_once(a.bucket);
  const unsigned threads =
      at_once == 1 ? kThreads : static_cast<unsigned>((a.bucket + 3) / 4);  // of a bucket
  if (thread.index >= at_once * threads) return;
  bool is_bad = false;
  for (std::uint64_t b = thread.block * at_once + thread.index / threads; b < buckets.number;
       b += thread.blocks * at_once) {
    const std::uint64_t first = b * a.bucket;
    const std::uint64_t count = a.count - first < a.bucket ? a.count - first : a.bucket;
    for (std::uint64_t at = 4 * (thread.index % threads); at < count; at += 4 * threads) {
      Group sum{};
      if (sum_group<Code>(a, b * buckets.bytes, at, count - at, sum)) is_bad = true;
      store_group(a.values + first + at, sum, count - at);
    }
  }
  if (is_bad) store_shared_word(a.bad, 1);
}

}  // namespace heddle::gpu::kernels
