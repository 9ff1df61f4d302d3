// The loop all vector kernels share. Included once per instruction set by Highway's foreach_target, hence the
// toggling guard instead of #pragma once.
//
// Bits of a result depend on the operands alone, never on the count, the alignment or the position of an
// element: there is no scalar tail. Counts that do not fill a whole number of vectors are finished with a
// vector that overlaps the last full one, and counts below one vector with a pair of overlapping narrower
// vectors, so that every element goes through the same vector expression.
//
// `out` and `out2` may be inputs. Overlapping vectors would then fold an element twice, so the head and the
// tail are computed before the first store and stored after the last load.
#if defined(HEDDLE_KERNELS_FOLD_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_FOLD_INL
#undef HEDDLE_KERNELS_FOLD_INL
#else
#define HEDDLE_KERNELS_FOLD_INL
#endif

#include <hwy/cache_control.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/dtype.hpp"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Bytes to and from lanes. Going through byte lanes makes no claim about alignment.
template <class D>
HWY_INLINE hn::Vec<D> load_lanes(D d, const std::uint8_t* from) {
#if HWY_TARGET == HWY_SCALAR
  hn::TFromD<D> value;
  std::memcpy(&value, from, sizeof(value));
  return hn::Set(d, value);
#else
  return hn::BitCast(d, hn::LoadU(hn::Repartition<std::uint8_t, D>(), from));
#endif
}

template <class D>
HWY_INLINE void store_lanes(D, hn::Vec<D> v, std::uint8_t* to) {
#if HWY_TARGET == HWY_SCALAR
  const hn::TFromD<D> value = hn::GetLane(v);
  std::memcpy(to, &value, sizeof(value));
#else
  const hn::Repartition<std::uint8_t, D> bytes;
  hn::StoreU(hn::BitCast(bytes, v), bytes, to);
#endif
}

// The same past the cache, for `to` aligned to the vector. Not ordered with other stores before a
// FlushStream().
template <class D>
HWY_INLINE void stream_lanes(D d, hn::Vec<D> v, std::uint8_t* to) {
#if HWY_TARGET != HWY_SCALAR
  const hn::Repartition<std::uint8_t, D> bytes;
  // Highway streams whole registers only, at the least 16 bytes, whatever the tag says.
  if constexpr (hn::MaxLanes(bytes) >= 16) {
    hn::Stream(hn::BitCast(bytes, v), bytes, to);
    return;
  }
#endif
  store_lanes(d, v, to);
}

// An element that is computed with as it is stored. Other representations have the same members
// (half_inl.hpp): encode() gives the lanes to store.
template <typename T>
struct Plain {
  using Lane = T;
  static constexpr std::size_t kBytes = sizeof(T);  // of one element in memory
  template <class D>
  using Stored = D;
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const std::uint8_t* from) {
    return load_lanes(d, from);
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> encode(D, hn::Vec<D> v) {
    return v;
  }
};

// Bytes that an operation sees together. More than an element where that is a part of a number.
template <class Element>
inline constexpr std::size_t kWholeBytes = Element::kBytes;

template <class Element>
inline constexpr std::size_t kFullLanes = hn::MaxLanes(hn::ScalableTag<typename Element::Lane>());

// The inputs. fold() gives one vector of the result at a byte offset; fold_block() four, which hides
// latencies and, for many inputs, spreads the loop over inputs across more work.
template <class Element, class Operation>
struct TwoInputs {
  const std::uint8_t* a;
  const std::uint8_t* b;

  template <class D>
  HWY_INLINE hn::Vec<D> fold(D d, std::size_t at) const {
    return Operation::apply(d, Element::load(d, a + at), Element::load(d, b + at));
  }
  template <class D, class V>
  HWY_INLINE void fold_block(D d, std::size_t at, std::size_t stride, V& v0, V& v1, V& v2, V& v3) const {
    v0 = fold(d, at);
    v1 = fold(d, at + stride);
    v2 = fold(d, at + 2 * stride);
    v3 = fold(d, at + 3 * stride);
  }
};

template <class Element, class Operation>
struct ManyInputs {
  const void* const* inputs;
  unsigned n_inputs;

  HWY_INLINE const std::uint8_t* input(unsigned k) const {
    return static_cast<const std::uint8_t*>(inputs[k]);
  }

  template <class D>
  HWY_INLINE hn::Vec<D> fold(D d, std::size_t at) const {
    auto sum = Element::load(d, input(0) + at);
    for (unsigned k = 1; k < n_inputs; ++k)
      sum = Operation::apply(d, sum, Element::load(d, input(k) + at));
    return sum;
  }
  template <class D, class V>
  HWY_INLINE void fold_block(D d, std::size_t at, std::size_t stride, V& v0, V& v1, V& v2, V& v3) const {
    const std::uint8_t* from = input(0) + at;
    v0 = Element::load(d, from);
    v1 = Element::load(d, from + stride);
    v2 = Element::load(d, from + 2 * stride);
    v3 = Element::load(d, from + 3 * stride);
    for (unsigned k = 1; k < n_inputs; ++k) {
      from = input(k) + at;
      v0 = Operation::apply(d, v0, Element::load(d, from));
      v1 = Operation::apply(d, v1, Element::load(d, from + stride));
      v2 = Operation::apply(d, v2, Element::load(d, from + 2 * stride));
      v3 = Operation::apply(d, v3, Element::load(d, from + 3 * stride));
    }
  }
};

// The outputs: one or two. With kStream the bulk of `out` (not of `out2`) is stored past the cache.
template <class Element, bool kSecond, bool kStream = false>
struct Outputs {
  std::uint8_t* out;
  std::uint8_t* out2;

  template <class D>
  HWY_INLINE void store(D d, hn::Vec<D> v, std::size_t at) const {
    const typename Element::template Stored<D> stored;
    const auto lanes = Element::encode(d, v);
    store_lanes(stored, lanes, out + at);
    if constexpr (kSecond) store_lanes(stored, lanes, out2 + at);
  }
  // Into the aligned middle part.
  template <class D>
  HWY_INLINE void store_bulk(D d, hn::Vec<D> v, std::size_t at) const {
    if constexpr (kStream) {
      const typename Element::template Stored<D> stored;
      const auto lanes = Element::encode(d, v);
      stream_lanes(stored, lanes, out + at);
      if constexpr (kSecond) store_lanes(stored, lanes, out2 + at);
    } else {
      store(d, v, at);
    }
  }
};

// count < 2 * kLanes. Two vectors that overlap unless count == 2 * kLanes.
template <class Element, std::size_t kLanes, class Inputs, class Sink>
HWY_INLINE void fold_short(const Inputs& inputs, const Sink& sink, std::size_t count) {
  if (count >= kLanes) {
    const hn::CappedTag<typename Element::Lane, kLanes> d;
    const auto first = inputs.fold(d, 0);
    if constexpr (kLanes > 1) {
      const std::size_t at = (count - kLanes) * Element::kBytes;
      const auto last = inputs.fold(d, at);
      sink.store(d, last, at);
    }
    sink.store(d, first, 0);
  } else if constexpr (kLanes * Element::kBytes > kWholeBytes<Element>) {
    fold_short<Element, kLanes / 2>(inputs, sink, count);
  }
}

// The least count worth aligning stores for: below, the extra vector costs more than the split stores.
template <class Element>
inline constexpr std::size_t kAlignFrom = 16 * kFullLanes<Element>;

// How many bytes into `out` the first vector-aligned store can be; 0 where alignment is out of reach.
// Loads cross cache lines as the caller laid them out; stores that do cost more, and only they can be chosen
// here.
template <class Element, std::size_t kVectorBytes>
HWY_INLINE std::size_t bytes_to_alignment(const std::uint8_t* out) {
  const std::size_t bytes = (0 - reinterpret_cast<std::uintptr_t>(out)) % kVectorBytes;
  return bytes % kWholeBytes<Element> == 0 ? bytes : 0;
}

template <class Element, class Inputs, class Sink>
HWY_INLINE void fold_long(const Inputs& inputs, const Sink& sink, std::size_t count) {
  constexpr std::size_t kLanes = kFullLanes<Element>;
  constexpr std::size_t kStride = kLanes * Element::kBytes;
  const hn::CappedTag<typename Element::Lane, kLanes> d;
  const std::size_t end = count * Element::kBytes;
  const std::size_t tail_at = end - kStride;
  const auto tail = inputs.fold(d, tail_at);
  const auto head = inputs.fold(d, 0);

  std::size_t at = count >= kAlignFrom<Element> ? bytes_to_alignment<Element, kStride>(sink.out) : 0;
  for (; at + 4 * kStride <= end; at += 4 * kStride) {
    hn::Vec<decltype(d)> v0, v1, v2, v3;
    inputs.fold_block(d, at, kStride, v0, v1, v2, v3);
    sink.store_bulk(d, v0, at);
    sink.store_bulk(d, v1, at + kStride);
    sink.store_bulk(d, v2, at + 2 * kStride);
    sink.store_bulk(d, v3, at + 3 * kStride);
  }
  for (; at + kStride <= end; at += kStride)
    sink.store(d, inputs.fold(d, at), at);
  sink.store(d, tail, tail_at);
  sink.store(d, head, 0);
}

template <class Element, class Inputs, class Sink>
HWY_INLINE void fold_all(const Inputs& inputs, const Sink& sink, std::size_t count) {
  constexpr std::size_t kLanes = kFullLanes<Element>;
  if (count >= 2 * kLanes) {
    fold_long<Element>(inputs, sink, count);
  } else {
    fold_short<Element, kLanes>(inputs, sink, count);
  }
}

template <class Element, class Operation, bool kSecond>
HWY_NOINLINE void fold_many(void* out, void* out2, const void* const* inputs, unsigned n_inputs,
                            std::size_t count) {
  const ManyInputs<Element, Operation> from{inputs, n_inputs};
  const Outputs<Element, kSecond> to{static_cast<std::uint8_t*>(out), static_cast<std::uint8_t*>(out2)};
  fold_all<Element>(from, to, count);
}

// The FoldFn for one element representation and one operation.
template <class Element, class Operation>
void fold(void* out, void* out2, const void* const* inputs, unsigned n_inputs, std::size_t count) {
  if (HWY_LIKELY(n_inputs == 2)) {
    const TwoInputs<Element, Operation> from{static_cast<const std::uint8_t*>(inputs[0]),
                                             static_cast<const std::uint8_t*>(inputs[1])};
    auto* to = static_cast<std::uint8_t*>(out);
    if (out2 == nullptr) {
      fold_all<Element>(from, Outputs<Element, false>{to, nullptr}, count);
    } else {
      fold_all<Element>(from, Outputs<Element, true>{to, static_cast<std::uint8_t*>(out2)}, count);
    }
    return;
  }
  if (n_inputs == 1) {  // a copy: no rounding, no quieting of NaNs
    if (out2 != nullptr && out2 != inputs[0]) std::memcpy(out2, inputs[0], count * Element::kBytes);
    if (out != inputs[0]) std::memcpy(out, inputs[0], count * Element::kBytes);
    return;
  }
  if (out2 == nullptr) {
    fold_many<Element, Operation, false>(out, nullptr, inputs, n_inputs, count);
  } else {
    fold_many<Element, Operation, true>(out, out2, inputs, n_inputs, count);
  }
}

// Whether storing past the cache is possible, and no waste: an output that is also an input is in the cache
// already.
template <class Element>
HWY_INLINE bool can_stream(const void* out, const void* const* inputs, unsigned n_inputs, std::size_t count) {
  if (n_inputs < 2 || count < kAlignFrom<Element>) return false;
  if (reinterpret_cast<std::uintptr_t>(out) % Element::kBytes != 0) return false;
  for (unsigned k = 0; k < n_inputs; ++k)
    if (inputs[k] == out) return false;
  return true;
}

template <class Element, class Operation, class Inputs>
HWY_INLINE void fold_streaming_from(const Inputs& from, void* out, void* out2, std::size_t count) {
  auto* to = static_cast<std::uint8_t*>(out);
  if (out2 == nullptr) {
    fold_long<Element>(from, Outputs<Element, false, true>{to, nullptr}, count);
  } else {
    fold_long<Element>(from, Outputs<Element, true, true>{to, static_cast<std::uint8_t*>(out2)}, count);
  }
  hwy::FlushStream();  // whoever is told of the result by a later store must find it
}

// fold() that writes `out` past the cache where that is possible.
template <class Element, class Operation>
void fold_streaming(void* out, void* out2, const void* const* inputs, unsigned n_inputs, std::size_t count) {
  if (!can_stream<Element>(out, inputs, n_inputs, count)) {
    fold<Element, Operation>(out, out2, inputs, n_inputs, count);
  } else if (n_inputs == 2) {
    const TwoInputs<Element, Operation> from{static_cast<const std::uint8_t*>(inputs[0]),
                                             static_cast<const std::uint8_t*>(inputs[1])};
    fold_streaming_from<Element, Operation>(from, out, out2, count);
  } else {
    fold_streaming_from<Element, Operation>(ManyInputs<Element, Operation>{inputs, n_inputs}, out, out2,
                                            count);
  }
}

// The same for something made of kParts elements that do not interact: a complex sum, the bytes of a bitwise
// and.
template <class Element, class Operation, std::size_t kParts>
void fold_parts(void* out, void* out2, const void* const* inputs, unsigned n_inputs, std::size_t count) {
  fold<Element, Operation>(out, out2, inputs, n_inputs, count * kParts);
}

}  // namespace heddle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
