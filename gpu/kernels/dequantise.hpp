// Codes of several vectors (quantise.hpp) into the sum of what they stand for, in one pass: all codes are
// read, and each value is written once.
#pragma once

#include <cstdint>

#include "gpu/kernels/block.hpp"
#include "gpu/kernels/fold.hpp"
#include "gpu/kernels/operations.hpp"
#include "gpu/kernels/quantise.hpp"
#include "gpu/kernels/sparse_arguments.hpp"

namespace heddle::gpu::kernels {

// The sum of a group of all inputs, in their order; `bucket`: where its bucket begins in each of them. The
// codes of the next input come while one is added. Whether no encoder wrote some of it.
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

// The same of four values whose codes lie at their alignment, as long as all are numbers that an encoder
// wrote. False: something is odd, and the sum means nothing.
template <class Code>
HEDDLE_DEVICE bool sum_four(const DequantiseArguments& a, std::uint64_t bucket, std::uint32_t at,
                            Group& sum) {
  using Coded = typename Code::Coded;
  std::uint32_t odd = 0;
  fold_inputs<Coded>(
      a.n_inputs, [&](unsigned k) { return Code::load_four(a.codes[k] + bucket, at); },
      [&](const Coded& coded) { odd = Code::decode_four(coded, sum); },
      [&](const Coded& coded) {
        Group group;
        odd |= Code::decode_four(coded, group);
        HEDDLE_UNROLLED
        for (unsigned i = 0; i < 4; ++i)
          sum.values[i] = FloatSum::plain(sum.values[i], group.values[i]);
      });
  bool is_odd = odd != 0;
  HEDDLE_UNROLLED
  for (unsigned i = 0; i < 4; ++i)
    is_odd |= is_nan(sum.values[i]);
  return !is_odd;
}

// Whether sum_four() is for the groups of four of all buckets.
template <class Code>
HEDDLE_DEVICE bool are_aligned(const DequantiseArguments& a, std::uint64_t bytes) {
  if (a.bucket < a.count && (a.bucket % 4 != 0 || bytes % Code::kAlignment != 0)) return false;
  std::uintptr_t bits = 0;
  HEDDLE_NOT_UNROLLED
  for (unsigned k = 0; k < a.n_inputs; ++k)
    bits |= reinterpret_cast<std::uintptr_t>(a.codes[k]);
  return bits % Code::kAlignment == 0 && reinterpret_cast<std::uintptr_t>(a.values) % sizeof(Vector) == 0;
}

// The groups of a thread of a bucket of `count` values from `first` on: the one at `own`, and all that are
// `step` values further. Whether no encoder wrote some of it.
template <class Code>
HEDDLE_DEVICE bool sum_bucket(const DequantiseArguments& a, std::uint64_t bucket, std::uint64_t first,
                              std::uint64_t count, bool aligned, std::uint32_t own, std::uint32_t step) {
  float* const values = a.values + first;
  // Whole groups first, as long as nothing is odd, with offsets of 32 bits that do not run over.
  const std::uint32_t whole = aligned && count >= Code::kWhole && count >> 31 == 0
                                  ? static_cast<std::uint32_t>(count) - (Code::kWhole - 1)
                                  : 0;
  std::uint32_t at = own;
  HEDDLE_NOT_UNROLLED
  for (; at < whole; at += step) {
    Group sum;
    if (!sum_four<Code>(a, bucket, at, sum)) break;
    store_vector(reinterpret_cast<unsigned char*>(values + at), bits_as<Vector>(sum));
  }
  bool is_bad = false;
  HEDDLE_NOT_UNROLLED
  for (std::uint64_t rest = at; rest < count; rest += step) {
    Group sum{};
    if (sum_group<Code>(a, bucket, rest, count - rest, sum)) is_bad = true;
    store_group(values + rest, sum, count - rest);
  }
  return is_bad;
}

template <class Code>
HEDDLE_DEVICE void dequantise_share(const DequantiseArguments& a, const Thread& thread) {
  const std::uint64_t bytes = Buckets<Code>(a.count, a.bucket).bytes;
  const bool aligned = are_aligned<Code>(a, bytes);
  const unsigned threads = threads_of_bucket(a.bucket);
  const unsigned at_once = buckets_at_once(a.bucket);
  if (thread.index >= at_once * threads) return;
  const unsigned own = 4 * (thread.index % threads);
  bool is_bad = false;
  const std::uint64_t b = thread.block * at_once + thread.index / threads;
  const std::uint64_t stride = thread.blocks * at_once;
  std::uint64_t from = b * bytes;
  for (std::uint64_t first = b * a.bucket; first < a.count;
       first += stride * a.bucket, from += stride * bytes) {
    const std::uint64_t count = a.count - first < a.bucket ? a.count - first : a.bucket;
    if (sum_bucket<Code>(a, from, first, count, aligned, own, 4 * threads)) is_bad = true;
  }
  if (is_bad) store_shared_word(a.bad, 1);
}

}  // namespace heddle::gpu::kernels
