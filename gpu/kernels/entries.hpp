// What collectives do with entries besides adding them up: whether they keep the contract of sparse vectors,
// and what is left of a vector when some of its entries were sent.
#pragma once

#include <cstdint>

#include "gpu/kernels/block.hpp"
#include "gpu/kernels/elements.hpp"
#include "gpu/kernels/sparse_arguments.hpp"

namespace heddle::gpu::kernels {

// Entry i is compared with the one before it: all pairs are, so indices that rise from each to the next rise
// altogether.
template <class Index>
HEDDLE_DEVICE void check_share(const CheckArguments& a, const Thread& thread) {
  const std::uint64_t threads = thread.blocks * kThreads;
  bool is_broken = false;
  for (std::uint64_t i = thread.block * kThreads + thread.index; i < a.count; i += threads) {
    const Index index = load_element<Index>(a.indices + i * sizeof(Index));
    if (index >= a.dimension) is_broken = true;
    if (i > 0 && load_element<Index>(a.indices + (i - 1) * sizeof(Index)) >= index) is_broken = true;
  }
  if (is_broken) store_shared_word(a.broken, 1);
}

HEDDLE_DEVICE inline bool is_finite(std::uint32_t bits) {
  constexpr std::uint32_t kExponent = 0x7F800000U;
  return (bits & kExponent) != kExponent;
}

// How many entries there are is known on the device alone. What was sent leaves 0.
template <class Index>
HEDDLE_DEVICE void forget_share(const ForgetArguments& a, const Thread& thread) {
  const std::uint64_t threads = thread.blocks * kThreads;
  const std::uint64_t count = *a.count < a.capacity ? *a.count : a.capacity;
  bool some_finite = false;
  for (std::uint64_t i = thread.block * kThreads + thread.index; i < count; i += threads) {
    const Index index = load_element<Index>(a.indices + i * sizeof(Index));
    if (is_finite(load_element<std::uint32_t>(a.values + i * sizeof(float)))) some_finite = true;
    if (index < a.dimension) a.vector[index] = 0;
  }
  if (some_finite) store_shared_word(a.some_finite, 1);
}

// What is not finite is larger than all that is: where something finite was among the largest, nothing else
// is left.
HEDDLE_DEVICE inline void forget_rest_share(const ForgetArguments& a, const Thread& thread) {
  if (*a.some_finite != 0) return;
  const std::uint64_t threads = thread.blocks * kThreads;
  for (std::uint64_t i = thread.block * kThreads + thread.index; i < a.dimension; i += threads) {
    if (!is_finite(bits_as<std::uint32_t>(a.vector[i]))) a.vector[i] = 0;
  }
}

}  // namespace heddle::gpu::kernels
