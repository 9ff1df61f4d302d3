// Entries into a dense vector: set, or added to what is there. Indices are sorted and each occurs once, so
// that no two threads touch an element. One that is not less than the dimension is passed over, since nobody
// but this has looked at it.
#pragma once

#include <cstdint>

#include "gpu/kernels/elements.hpp"
#include "gpu/kernels/operations.hpp"
#include "gpu/kernels/sparse_arguments.hpp"

namespace heddle::gpu::kernels {

struct Set {};

template <class Operation>
inline constexpr bool kIsSet = false;
template <>
inline constexpr bool kIsSet<Set> = true;

// Entries first, first + stride, ..., of which there are kMany; all loads of one kind are started before the
// first is used.
template <class Element, class Index, class Operation, unsigned kMany>
HEDDLE_HOST_DEVICE void scatter_some(const ScatterArguments& a, std::uint64_t first, std::uint64_t stride) {
  using Stored = typename Element::Stored;
  std::uint64_t at[kMany];
  Stored values[kMany];
  for (unsigned i = 0; i < kMany; ++i) {
    at[i] = load_element<Index>(a.indices + (first + i * stride) * sizeof(Index));
    values[i] = load_element<Stored>(a.values + (first + i * stride) * sizeof(Stored));
  }
  if constexpr (!kIsSet<Operation>) {
    Stored dense[kMany];
    for (unsigned i = 0; i < kMany; ++i)
      dense[i] = at[i] < a.dimension ? load_element<Stored>(a.dense + at[i] * sizeof(Stored)) : values[i];
    for (unsigned i = 0; i < kMany; ++i)
      values[i] = Element::encode(Operation::apply(Element::decode(dense[i]), Element::decode(values[i])));
  }
  for (unsigned i = 0; i < kMany; ++i) {
    if (at[i] < a.dimension) store_element(a.dense + at[i] * sizeof(Stored), values[i]);
  }
}

template <class Element, class Index, class Operation>
HEDDLE_HOST_DEVICE void scatter_share(const ScatterArguments& a, const Thread& thread) {
  const std::uint64_t threads = thread.blocks * kThreads;
  const std::uint64_t count = a.counted != nullptr && *a.counted < a.count ? *a.counted : a.count;
  std::uint64_t entry = thread.block * kThreads + thread.index;
  for (; entry + (kInFlight - 1) * threads < count; entry += kInFlight * threads)
    scatter_some<Element, Index, Operation, kInFlight>(a, entry, threads);
  for (; entry < count; entry += threads)
    scatter_some<Element, Index, Operation, 1>(a, entry, 0);
}

}  // namespace heddle::gpu::kernels
