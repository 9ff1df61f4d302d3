// The codecs of 16 bits a value (src/compress/codec.hpp, `f16` and `bf16`): the host's bytes and values,
// NaN's payload included. Each value is rounded by itself: there is no scale, and a bucket is nothing but the
// values that a block takes at once.
#pragma once

#include <cstdint>

#include "gpu/kernels/elements.hpp"
#include "gpu/kernels/quantise.hpp"

namespace heddle::gpu::kernels {

template <class Element>
struct Halves {
  struct Shared {};
  static constexpr unsigned kBits = 16;
  static constexpr unsigned kHeader = 0;

  // Of a group, the first value lowest.
  struct Coded {
    std::uint64_t codes;
  };

  HEDDLE_DEVICE static void quantise(const Block& block, const QuantiseArguments& a, Shared& /*shared*/) {
    block.alone([&](unsigned thread) {
      for (std::uint64_t at = 4 * (block.number * kThreads + thread); at < a.count;
           at += 4 * block.of * kThreads)
        code(a, at, a.count - at);
    });
  }

  // Groups lie at any address, but mostly at one where they are a word.
  HEDDLE_DEVICE static Coded load_coded(const unsigned char* from, std::uint64_t at, std::uint64_t left) {
    from += 2 * at;
    if (is_word(from, left)) return {load_element<std::uint64_t>(from)};
    Coded coded{};
    HEDDLE_NOT_UNROLLED
    for (unsigned k = 0; k < code_bytes(left, kBits); ++k)
      coded.codes |= std::uint64_t{from[k]} << 8 * k;
    return coded;
  }
  // All bits mean something: no group is one that an encoder could not have written.
  HEDDLE_DEVICE static bool decode(const Coded& coded, std::uint64_t /*left*/, Group& group) {
    HEDDLE_UNROLLED
    for (unsigned i = 0; i < 4; ++i)
      group.values[i] = Element::decode(static_cast<typename Element::Stored>(coded.codes >> 16 * i));
    return false;
  }

  // Of four values, at their alignment.
  static constexpr unsigned kAlignment = sizeof(std::uint64_t);
  static constexpr unsigned kWhole = 4;
  HEDDLE_DEVICE static Coded load_four(const unsigned char* from, std::uint32_t at) {
    return {load_element<std::uint64_t>(from + 2 * std::uint64_t{at})};
  }
  // Nothing is odd but what the sum shows: a NaN.
  HEDDLE_DEVICE static std::uint32_t decode_four(const Coded& coded, Group& group) {
    decode(coded, 4, group);
    return 0;
  }

 private:
  HEDDLE_DEVICE static bool is_word(const unsigned char* at, std::uint64_t left) {
    return left >= 4 && reinterpret_cast<std::uintptr_t>(at) % sizeof(std::uint64_t) == 0;
  }

  // The four values from `at` on, or `left` where these are fewer.
  HEDDLE_DEVICE static void code(const QuantiseArguments& a, std::uint64_t at, std::uint64_t left) {
    Group group = compensated<FloatSum>(a, at, left);
    std::uint64_t codes = 0;
    HEDDLE_UNROLLED
    for (unsigned i = 0; i < 4; ++i) {
      const typename Element::Stored rounded = Element::encode(group.values[i]);
      codes |= std::uint64_t{rounded} << 16 * i;
      group.values[i] = finite_or_zero(group.values[i] - Element::decode(rounded));
    }
    unsigned char* const to = a.codes + 2 * at;
    if (is_word(to, left)) {
      store_element(to, codes);
    } else {
      HEDDLE_NOT_UNROLLED
      for (unsigned k = 0; k < code_bytes(left, kBits); ++k)
        to[k] = static_cast<unsigned char>(codes >> 8 * k);
    }
    if (a.left_out != nullptr) store_group(a.left_out + at, group, left);
  }
};

}  // namespace heddle::gpu::kernels
