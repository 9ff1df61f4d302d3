// The loops of every kernel. A thread that writes an element has read it from all inputs before, and no other
// thread reads it: so outputs may be inputs.
#pragma once

#include <cstdint>
#include <cstring>

#include "gpu/kernels/arguments.hpp"
#include "gpu/kernels/elements.hpp"
#include "gpu/kernels/operations.hpp"
#include "gpu/kernels/portable.hpp"
#include "gpu/kernels/words.hpp"

namespace heddle::gpu::kernels {

// A fold of one input: its bytes. Kernels of operations fold two inputs or more.
struct Copy {};

template <class Operation>
inline constexpr bool kIsCopy = false;
template <>
inline constexpr bool kIsCopy<Copy> = true;

template <class Element>
inline constexpr unsigned kPerVector = sizeof(Vector) / sizeof(typename Element::Stored);

// ---- Sixteen bytes at a time

// What 16 bytes are folded as: mostly what they are made of; words where that saves taking them to pieces.
template <class Of, class With>
struct InVectors {
  using Element = Of;
  using Operation = With;
};
template <class With>
struct InWords {
  using Element = Plain<std::uint32_t>;
  using Operation = With;
};
#define HEDDLE_IN_WORDS(type, operation, packed) \
  template <>                                    \
  struct InVectors<Plain<type>, operation> : InWords<packed> {};
HEDDLE_IN_WORDS(std::uint8_t, BitAnd, BitAnd)
HEDDLE_IN_WORDS(std::uint8_t, BitOr, BitOr)
HEDDLE_IN_WORDS(std::uint8_t, BitXor, BitXor)
HEDDLE_IN_WORDS(std::uint8_t, IntegerSum, PackedSum<0x80808080U>)
HEDDLE_IN_WORDS(std::uint16_t, IntegerSum, PackedSum<0x80008000U>)
HEDDLE_IN_WORDS(std::uint8_t, LogicalAnd, PackedLogicalAnd<0x80808080U>)
HEDDLE_IN_WORDS(std::uint16_t, LogicalAnd, PackedLogicalAnd<0x80008000U>)
HEDDLE_IN_WORDS(std::uint8_t, LogicalOr, PackedLogicalOr<0x80808080U>)
HEDDLE_IN_WORDS(std::uint16_t, LogicalOr, PackedLogicalOr<0x80008000U>)
HEDDLE_IN_WORDS(std::uint8_t, LogicalXor, PackedLogicalXor<0x80808080U>)
HEDDLE_IN_WORDS(std::uint16_t, LogicalXor, PackedLogicalXor<0x80008000U>)
#undef HEDDLE_IN_WORDS

template <class Element>
struct Lanes {
  typename Element::Value values[kPerVector<Element>];
};

// How values are computed with. `is_odd` gets set where the result may have other bits than the host's.
template <class Of, class With>
struct OneByOne {
  using Element = Of;
  HEDDLE_HOST_DEVICE static Lanes<Element> decode(const Vector& vector, bool& /*is_odd*/) {
    typename Element::Stored stored[kPerVector<Element>];
    std::memcpy(stored, &vector, sizeof vector);
    Lanes<Element> lanes;
    for (unsigned i = 0; i < kPerVector<Element>; ++i)
      lanes.values[i] = Element::decode(stored[i]);
    return lanes;
  }
  HEDDLE_HOST_DEVICE static Vector encode(const Lanes<Element>& lanes, bool& /*is_odd*/) {
    typename Element::Stored stored[kPerVector<Element>];
    for (unsigned i = 0; i < kPerVector<Element>; ++i)
      stored[i] = Element::encode(lanes.values[i]);
    Vector vector;
    std::memcpy(&vector, stored, sizeof vector);
    return vector;
  }
  template <typename T>
  HEDDLE_HOST_DEVICE static T apply(T a, T b) {
    return With::apply(a, b);
  }
};

template <class Of, class With>
struct ByWords {
  using Element = Of;
  static constexpr unsigned kEach = kPerVector<Element> / 4;
  HEDDLE_HOST_DEVICE static Lanes<Element> decode(const Vector& vector, bool& is_odd) {
    Lanes<Element> lanes;
    for (unsigned w = 0; w < 4; ++w)
      Words<Element>::decode(vector.words[w], lanes.values + w * kEach, is_odd);
    return lanes;
  }
  HEDDLE_HOST_DEVICE static Vector encode(const Lanes<Element>& lanes, bool& is_odd) {
    Vector vector;
    for (unsigned w = 0; w < 4; ++w)
      vector.words[w] = Words<Element>::template encode<With::kRounds>(lanes.values + w * kEach, is_odd);
    return vector;
  }
  template <typename T>
  HEDDLE_HOST_DEVICE static T apply(T a, T b) {
    return With::plain(a, b);
  }
};

template <class As>
HEDDLE_HOST_DEVICE void fold_into(Lanes<typename As::Element>& sum, const Vector& next, bool& is_odd) {
  const Lanes<typename As::Element> lanes = As::decode(next, is_odd);
  for (unsigned i = 0; i < kPerVector<typename As::Element>; ++i)
    sum.values[i] = As::apply(sum.values[i], lanes.values[i]);
}

// Vectors first, first + stride, ..., of which there are kMany; all loads of an input are started before the
// first is used.
template <unsigned kMany>
struct Batch {
  Vector vectors[kMany];

  HEDDLE_HOST_DEVICE void load(const unsigned char* from, std::uint64_t first, std::uint64_t stride) {
    for (unsigned v = 0; v < kMany; ++v)
      vectors[v] = load_vector(from + (first + v * stride) * sizeof(Vector));
  }
  HEDDLE_HOST_DEVICE void store(unsigned char* to, std::uint64_t first, std::uint64_t stride) const {
    for (unsigned v = 0; v < kMany; ++v)
      store_vector(to + (first + v * stride) * sizeof(Vector), vectors[v]);
  }
};

// `skip`: bytes before the first vector. False: the result is odd, and nothing was written.
template <class As, bool kCopies, unsigned kMany>
HEDDLE_HOST_DEVICE bool fold_vectors(const FoldArguments& arguments, std::uint64_t skip, std::uint64_t first,
                                     std::uint64_t stride) {
  Batch<kMany> batch;
  batch.load(arguments.inputs[0] + skip, first, stride);
  if constexpr (!kCopies) {
    Batch<kMany> next;
    next.load(arguments.inputs[1] + skip, first, stride);
    bool is_odd = false;
    Lanes<typename As::Element> sums[kMany];
    HEDDLE_UNROLLED
    for (unsigned v = 0; v < kMany; ++v)
      sums[v] = As::decode(batch.vectors[v], is_odd);
    HEDDLE_NOT_UNROLLED
    for (unsigned k = 2;; ++k) {
      HEDDLE_UNROLLED
      for (unsigned v = 0; v < kMany; ++v)
        fold_into<As>(sums[v], next.vectors[v], is_odd);
      if (k >= arguments.n_inputs) break;
      next.load(arguments.inputs[k] + skip, first, stride);
    }
    HEDDLE_UNROLLED
    for (unsigned v = 0; v < kMany; ++v)
      batch.vectors[v] = As::encode(sums[v], is_odd);
    if (is_odd) return false;
  }
  HEDDLE_NOT_UNROLLED
  for (unsigned k = 0; k < arguments.n_outputs; ++k)
    batch.store(arguments.outputs[k] + skip, first, stride);
  return true;
}

// Inputs whose loads are on their way at once where a thread has one vector, or one element, of each: with so
// little of every input that is what makes up for the time that memory takes.
inline constexpr unsigned kInputsAtOnce = 4;

// first() of what load() gives of input 0, and fold() of what it gives of the others, from left to right.
template <typename Loaded, class Load, class First, class Fold>
HEDDLE_HOST_DEVICE void fold_inputs(std::uint32_t n_inputs, const Load& load, const First& first,
                                    const Fold& fold) {
  HEDDLE_NOT_UNROLLED
  for (unsigned k = 0; k < n_inputs; k += kInputsAtOnce) {
    Loaded next[kInputsAtOnce] = {};
    HEDDLE_UNROLLED
    for (unsigned i = 0; i < kInputsAtOnce; ++i)
      if (k + i < n_inputs) next[i] = load(k + i);
    HEDDLE_UNROLLED
    for (unsigned i = 0; i < kInputsAtOnce; ++i) {
      if (i == 0 && k == 0)
        first(next[i]);
      else if (k + i < n_inputs)
        fold(next[i]);
    }
  }
}

// One vector of each input.
template <class Element, class Operation>
HEDDLE_HOST_DEVICE void fold_vector(const FoldArguments& arguments, std::uint64_t skip, std::uint64_t at) {
  using As = OneByOne<Element, Operation>;
  const std::uint64_t begin = skip + at * sizeof(Vector);
  Vector result;
  if constexpr (kIsCopy<Operation>) {
    result = load_vector(arguments.inputs[0] + begin);
  } else {
    bool is_odd = false;
    Lanes<Element> sum{};
    fold_inputs<Vector>(
        arguments.n_inputs, [&](unsigned k) { return load_vector(arguments.inputs[k] + begin); },
        [&](const Vector& vector) { sum = As::decode(vector, is_odd); },
        [&](const Vector& vector) { fold_into<As>(sum, vector, is_odd); });
    result = As::encode(sum, is_odd);
  }
  HEDDLE_NOT_UNROLLED
  for (unsigned k = 0; k < arguments.n_outputs; ++k)
    store_vector(arguments.outputs[k] + begin, result);
}

// By words where that is possible, and once more where the result is odd: outputs may be inputs, but nothing
// was written to them.
template <class Element, class Operation, unsigned kMany>
HEDDLE_HOST_DEVICE void fold_part(const FoldArguments& arguments, std::uint64_t skip, std::uint64_t first) {
  using Slowly = OneByOne<Element, Operation>;
  constexpr bool kCopies = kIsCopy<Operation>;
  if constexpr (!Words<Element>::kAny) {
    fold_vectors<Slowly, kCopies, kMany>(arguments, skip, first, kThreads);
  } else if (!fold_vectors<ByWords<Element, Operation>, kCopies, kMany>(arguments, skip, first, kThreads)) {
    HEDDLE_NOT_UNROLLED
    for (unsigned v = 0; v < kMany; ++v)
      fold_vector<Element, Operation>(arguments, skip, first + v * kThreads);
  }
}

// ---- One element at a time

template <typename Stored>
HEDDLE_HOST_DEVICE Stored load_one(const unsigned char* from, bool by_element) {
  if (by_element) return load_element<Stored>(from);
  Stored stored;
  unsigned char bytes[sizeof(Stored)];
  for (unsigned i = 0; i < sizeof(Stored); ++i)
    bytes[i] = from[i];
  std::memcpy(&stored, bytes, sizeof stored);
  return stored;
}

template <typename Stored>
HEDDLE_HOST_DEVICE void store_one(unsigned char* to, const Stored& stored, bool by_element) {
  if (by_element) return store_element(to, stored);
  unsigned char bytes[sizeof(Stored)];
  std::memcpy(bytes, &stored, sizeof stored);
  for (unsigned i = 0; i < sizeof(Stored); ++i)
    to[i] = bytes[i];
}

// The single elements `first`, `first + stride`, ..., of which there are kMany.
template <class Element, class Operation, unsigned kMany>
HEDDLE_HOST_DEVICE void fold_singles(const FoldArguments& arguments, std::uint64_t in_vectors,
                                     std::uint64_t first, std::uint64_t stride) {
  using Stored = typename Element::Stored;
  const bool by_element = arguments.by_element != 0;
  std::uint64_t at[kMany];
  for (unsigned s = 0; s < kMany; ++s) {
    const std::uint64_t single = first + s * stride;
    at[s] = (single < arguments.head ? single : single + in_vectors) * sizeof(Stored);
  }
  Stored stored[kMany];
  for (unsigned s = 0; s < kMany; ++s)
    stored[s] = load_one<Stored>(arguments.inputs[0] + at[s], by_element);
  if constexpr (!kIsCopy<Operation>) {
    typename Element::Value sums[kMany];
    for (unsigned s = 0; s < kMany; ++s)
      sums[s] = Element::decode(stored[s]);
    HEDDLE_NOT_UNROLLED
    for (unsigned k = 1; k < arguments.n_inputs; ++k) {
      for (unsigned s = 0; s < kMany; ++s)
        stored[s] = load_one<Stored>(arguments.inputs[k] + at[s], by_element);
      for (unsigned s = 0; s < kMany; ++s)
        sums[s] = Operation::apply(sums[s], Element::decode(stored[s]));
    }
    for (unsigned s = 0; s < kMany; ++s)
      stored[s] = Element::encode(sums[s]);
  }
  HEDDLE_NOT_UNROLLED
  for (unsigned k = 0; k < arguments.n_outputs; ++k) {
    for (unsigned s = 0; s < kMany; ++s)
      store_one(arguments.outputs[k] + at[s], stored[s], by_element);
  }
}

// One of them.
template <class Element, class Operation>
HEDDLE_HOST_DEVICE void fold_single(const FoldArguments& arguments, std::uint64_t in_vectors,
                                    std::uint64_t single) {
  using Stored = typename Element::Stored;
  const bool by_element = arguments.by_element != 0;
  const std::uint64_t at = (single < arguments.head ? single : single + in_vectors) * sizeof(Stored);
  const auto load = [&](unsigned k) { return load_one<Stored>(arguments.inputs[k] + at, by_element); };
  Stored result;
  if constexpr (kIsCopy<Operation>) {
    result = load(0);
  } else {
    typename Element::Value sum{};
    fold_inputs<Stored>(
        arguments.n_inputs, load, [&](const Stored& stored) { sum = Element::decode(stored); },
        [&](const Stored& stored) { sum = Operation::apply(sum, Element::decode(stored)); });
    result = Element::encode(sum);
  }
  HEDDLE_NOT_UNROLLED
  for (unsigned k = 0; k < arguments.n_outputs; ++k)
    store_one(arguments.outputs[k] + at, result, by_element);
}

// ---- What one thread does

template <class Element, class Operation>
HEDDLE_HOST_DEVICE void fold_share(const FoldArguments& arguments, const Thread& thread) {
  using Wide = InVectors<Element, Operation>;
  using WideElement = typename Wide::Element;
  using WideOperation = typename Wide::Operation;
  // So that the values fit into the registers.
  constexpr unsigned kValues = 32;
  constexpr unsigned kAtOnce = kPerVector<WideElement> * kInFlight <= kValues ? kInFlight : kInFlight / 2;
  const std::uint64_t skip = arguments.head * sizeof(typename Element::Stored);

  // Neighbours read neighbouring vectors, in each of the loads of a tile.
  for (std::uint64_t tile = thread.block; tile < arguments.tiles; tile += thread.blocks) {
    const std::uint64_t first = tile * kTileVectors + thread.index;
    for (unsigned v = 0; v < kInFlight; v += kAtOnce)
      fold_part<WideElement, WideOperation, kAtOnce>(arguments, skip, first + v * kThreads);
  }

  const std::uint64_t threads = thread.blocks * kThreads;
  const std::uint64_t number = thread.block * kThreads + thread.index;
  for (std::uint64_t vector = arguments.tiles * kTileVectors + number; vector < arguments.vectors;
       vector += threads)
    fold_vector<WideElement, WideOperation>(arguments, skip, vector);

  const std::uint64_t in_vectors = arguments.vectors * kPerVector<Element>;
  const std::uint64_t singles = arguments.count - in_vectors;
  std::uint64_t single = number;
  for (; single + 3 * threads < singles; single += 4 * threads)
    fold_singles<Element, Operation, 4>(arguments, in_vectors, single, threads);
  for (; single < singles; single += threads)
    fold_single<Element, Operation>(arguments, in_vectors, single);
}

}  // namespace heddle::gpu::kernels
