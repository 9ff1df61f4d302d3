// The codecs with evenly spaced levels and random rounding (QSGD with 8, 4 and
// 2 bits a value; with 2 bits TernGrad as well): the bytes, the random numbers
// and the values of the host's (src/compress/codec.cpp, quantise.cpp,
// random.hpp). What a vector is coded from is its sum with what coding has left
// out so far, and what this coding leaves out can be kept in that place, in the
// same pass.
#pragma once

#include <cstdint>
#include <type_traits>

#include "gpu/kernels/block.hpp"
#include "gpu/kernels/division.hpp"
#include "gpu/kernels/operations.hpp"
#include "gpu/kernels/sparse_arguments.hpp"

namespace heddle::gpu::kernels {

inline constexpr std::uint32_t kInfinityBits = 0x7F800000U;
inline constexpr std::uint32_t kNotFinite = 0x7FC00000U;  // in place of a scale: some value is not finite

template <unsigned kBits>
inline constexpr std::uint32_t kLevels = (1U << (kBits - 1)) - 1;

// ---- Random numbers of a seed and a position

HEDDLE_DEVICE inline std::uint64_t mix64(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

// Is the same for all positions with the same upper half, and kept, since it
// takes long to make.
class RandomKey {
 public:
  RandomKey() = default;
  HEDDLE_DEVICE RandomKey(std::uint64_t seed, std::uint64_t position) : seed_(seed) { make(position >> 32); }
  HEDDLE_DEVICE std::uint64_t at(std::uint64_t position) {
    if (position >> 32 != upper_) make(position >> 32);
    return key_;
  }

 private:
  HEDDLE_DEVICE void make(std::uint64_t upper) {
    upper_ = static_cast<std::uint32_t>(upper);
    key_ = mix64(mix64(seed_) ^ mix64(~upper));
  }

  std::uint64_t seed_;
  std::uint32_t upper_;
  std::uint64_t key_;
};

// An odd multiple of 2^-24 below 1.
HEDDLE_DEVICE inline float random_threshold(std::uint64_t key, std::uint32_t position) {
  std::uint32_t x = position ^ static_cast<std::uint32_t>(key);
  x = (x ^ (x >> 17)) * 0xED5AD4BBU + static_cast<std::uint32_t>(key >> 32);
  x = (x ^ (x >> 11)) * 0xAC4C1B51U;
  x = (x ^ (x >> 15)) * 0x31848BABU;
  x ^= x >> 14;
  return static_cast<float>(x >> 8 | 1U) * 0x1p-24F;
}

// ---- One value

// The level of a value, which is its code less kLevels. `part`: its magnitude's of the scale.
template <unsigned kBits>
HEDDLE_DEVICE std::int32_t level_of(float value, float part, float threshold) {
  const float level = part * static_cast<float>(kLevels<kBits>);
  const auto below = static_cast<std::uint32_t>(level);
  const auto magnitude =
      static_cast<std::int32_t>(below + (threshold < level - static_cast<float>(below) ? 1U : 0U));
  return bits_as<std::uint32_t>(value) >> 31 != 0 ? -magnitude : magnitude;
}
HEDDLE_DEVICE inline float magnitude_of(float value) {
  return bits_as<float>(bits_as<std::uint32_t>(value) & 0x7FFFFFFFU);
}

template <unsigned kBits>
HEDDLE_DEVICE float value_of(std::int32_t level, float scale) {
  return static_cast<float>(level) * (1.0F / static_cast<float>(kLevels<kBits>)) * scale;
}

// ---- Four values: one vector, and half as many bytes of codes as a code has
// bits

struct Group {
  float values[4];
};

// Of a codec: kHeader bytes, and kBits for each value.
template <class Code>
struct Buckets {
  std::uint64_t number;
  std::uint64_t bytes;  // of a whole one

  HEDDLE_DEVICE Buckets(std::uint64_t count, std::uint64_t bucket)
      : number((count + bucket - 1) / bucket), bytes(Code::kHeader + (bucket * Code::kBits + 7) / 8) {}
};

// `values` begins at a group; four of them, or `left` where these are fewer and
// the others 0.
HEDDLE_DEVICE inline Group load_group(const float* values, std::uint64_t left) {
  const auto* at = reinterpret_cast<const unsigned char*>(values);
  if (left >= 4 && reinterpret_cast<std::uintptr_t>(at) % sizeof(Vector) == 0)
    return bits_as<Group>(load_vector(at));
  Group group{};
  HEDDLE_UNROLLED
  for (unsigned i = 0; i < 4; ++i)
    if (i < left) group.values[i] = load_element<float>(at + i * sizeof(float));
  return group;
}

HEDDLE_DEVICE inline void store_group(float* values, const Group& group, std::uint64_t left) {
  auto* at = reinterpret_cast<unsigned char*>(values);
  if (left >= 4 && reinterpret_cast<std::uintptr_t>(at) % sizeof(Vector) == 0)
    return store_vector(at, bits_as<Vector>(group));
  HEDDLE_UNROLLED
  for (unsigned i = 0; i < 4; ++i)
    if (i < left) store_element(at + i * sizeof(float), group.values[i]);
}

HEDDLE_DEVICE inline unsigned code_bytes(std::uint64_t left, unsigned bits) {
  return static_cast<unsigned>(((left < 4 ? left : 4) * bits + 7) / 8);
}

// ---- Quantise

struct QuantiseShared {
  std::uint32_t warps[kWarps];  // the largest magnitude, as bits, that each warp has seen
};

// Where it does not matter which NaN comes out.
struct PlainSum {
  HEDDLE_DEVICE static float apply(float a, float b) { return FloatSum::plain(a, b); }
};

template <class Sum>
HEDDLE_DEVICE Group compensated(const QuantiseArguments& a, std::uint64_t first, std::uint64_t left) {
  Group group = load_group(a.gradient + first, left);
  if (a.residual == nullptr) return group;
  const Group kept = load_group(a.residual + first, left);
  HEDDLE_UNROLLED
  for (unsigned i = 0; i < 4; ++i)
    group.values[i] = Sum::apply(group.values[i], kept.values[i]);
  return group;
}

// What counts as sent where it is not finite.
HEDDLE_DEVICE inline float finite_or_zero(float lost) {
  return (bits_as<std::uint32_t>(lost) & kInfinityBits) != kInfinityBits ? lost : 0.0F;
}

HEDDLE_DEVICE inline std::uint32_t largest_of(const Group& group) {
  std::uint32_t largest = 0;
  HEDDLE_UNROLLED
  for (unsigned i = 0; i < 4; ++i) {
    const std::uint32_t magnitude = bits_as<std::uint32_t>(group.values[i]) & 0x7FFFFFFFU;
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

// Returns the codes of a group, and makes it what they leave out.
template <unsigned kBits>
HEDDLE_DEVICE std::uint32_t code_group(std::uint64_t position, std::uint64_t left, std::uint32_t largest,
                                       RandomKey& keys, Group& group) {
  std::int32_t levels[4] = {};
  const float scale = bits_as<float>(largest);
  if (largest != 0 && largest < kInfinityBits) {
    const auto low = static_cast<std::uint32_t>(position);
    const std::uint64_t key = keys.at(position);
    const std::uint64_t last_key = low + 3 < low ? keys.at(position + 3) : key;
    HEDDLE_UNROLLED
    for (unsigned i = 0; i < 4; ++i)
      levels[i] = level_of<kBits>(group.values[i], magnitude_of(group.values[i]) / scale,
                                  random_threshold(low + i < low ? last_key : key, low + i));
  }
  std::uint32_t codes = 0;
  HEDDLE_UNROLLED
  for (unsigned i = 0; i < 4; ++i) {
    codes |= (kLevels<kBits> + static_cast<std::uint32_t>(levels[i])) << kBits * i;
    // What is not finite counts as sent, and so does its bucket.
    const float lost = group.values[i] - value_of<kBits>(levels[i], scale);
    group.values[i] = largest < kInfinityBits ? finite_or_zero(lost) : 0.0F;
  }
  return left < 4 ? codes & ((1U << kBits * static_cast<unsigned>(left)) - 1) : codes;
}

// What a block has of the arguments, of one bucket.
struct Part {
  std::uint64_t first;  // value
  std::uint64_t count;
  std::uint64_t position;
  std::uint32_t whole;  // so many values from the first on go by whole groups, which have one key and offsets
                        // of 32 bits

  HEDDLE_DEVICE Part(const QuantiseArguments& a, std::uint64_t at, bool is_aligned)
      : first(at), count(a.count - at < a.bucket ? a.count - at : a.bucket), position(a.position + at) {
    // Offsets do not run over either, where they are looked at behind the last group.
    const std::uint64_t end = static_cast<std::uint32_t>(position) + count + 8 * kThreads;
    whole = is_aligned && end >> 32 == 0 ? static_cast<std::uint32_t>(count) & ~3U : 0;
  }
};

// Whether groups of all buckets are whole vectors.
HEDDLE_DEVICE inline bool is_aligned(const QuantiseArguments& a) {
  const auto bits = reinterpret_cast<std::uintptr_t>(a.gradient) |
                    reinterpret_cast<std::uintptr_t>(a.residual) |
                    reinterpret_cast<std::uintptr_t>(a.left_out);
  return bits % sizeof(Vector) == 0 && (a.bucket % 4 == 0 || a.bucket >= a.count);
}

HEDDLE_DEVICE inline Group load_whole(const float* values) {
  return bits_as<Group>(load_vector(reinterpret_cast<const unsigned char*>(values)));
}

// As compensated() and code_group(), of one of the whole groups; for a scale that is_ordinary().
HEDDLE_DEVICE inline Group compensated_whole(const QuantiseArguments& a, const Part& part, std::uint32_t at) {
  Group group = load_whole(a.gradient + part.first + at);
  if (a.residual == nullptr) return group;
  const Group kept = load_whole(a.residual + part.first + at);
  HEDDLE_UNROLLED
  for (unsigned i = 0; i < 4; ++i)
    group.values[i] = PlainSum::apply(group.values[i], kept.values[i]);
  return group;
}

template <unsigned kBits>
HEDDLE_DEVICE std::uint32_t code_whole(std::uint64_t key, std::uint32_t low, float scale, float inverse,
                                       Group& group) {
  // What is added carries nothing over: each code is in its bits at the end.
  std::uint32_t codes = 0;
  HEDDLE_UNROLLED
  for (unsigned i = 0; i < 4; ++i) {
    const float value = group.values[i];
    const std::int32_t level =
        level_of<kBits>(value, quotient(magnitude_of(value), scale, inverse), random_threshold(key, low + i));
    codes += (kLevels<kBits> + static_cast<std::uint32_t>(level)) << kBits * i;
    // No more than the scale, which is finite.
    group.values[i] = value - value_of<kBits>(level, scale);
  }
  return codes;
}

// Of a group: one, two or four bytes.
template <unsigned kBytes>
HEDDLE_DEVICE void store_codes(unsigned char* to, std::uint32_t codes) {
  if (kBytes == 2 && reinterpret_cast<std::uintptr_t>(to) % kBytes == 0)
    return store_element(to, static_cast<std::uint16_t>(codes));
  store_bytes(to, codes, kBytes);
}

template <unsigned kOfCode>
struct Levels {
  using Shared = QuantiseShared;
  static constexpr unsigned kBits = kOfCode;
  static constexpr unsigned kHeader = sizeof(float);

  HEDDLE_DEVICE static void quantise(const Block& block, const QuantiseArguments& a, Shared& shared) {
    const Buckets<Levels> buckets(a.count, a.bucket);
    Each<RandomKey> keys;
    block.alone([&](unsigned thread) { keys[thread] = RandomKey(a.seed, a.position); });
    const bool aligned = is_aligned(a);
    unsigned char* to = a.codes + block.number * buckets.bytes;
    for (std::uint64_t first = block.number * a.bucket; first < a.count;
         first += block.of * a.bucket, to += block.of * buckets.bytes) {
      const Part part(a, first, aligned);
      Each<Group> own;  // of each thread's groups the first: mostly there is no other
      Each<std::uint32_t> largest;
      block.alone([&](unsigned thread) { largest[thread] = load(a, part, thread, own[thread]); });
      block.max_warps(largest, shared.warps);
      block.each([&](unsigned thread) {
        std::uint32_t all = 0;
        HEDDLE_UNROLLED
        for (unsigned w = 0; w < kWarps; ++w)
          all = shared.warps[w] > all ? shared.warps[w] : all;
        if (thread == 0) store_bytes(to, all < kInfinityBits ? all : kNotFinite, sizeof all);
        code(a, part, all, to + kHeader, thread, own[thread], keys[thread]);
      });
    }
  }

  // Of a group.
  struct Coded {
    std::uint32_t scale;
    std::uint32_t codes;
  };
  // The group at value `at` of the bucket that lies at `from`; there are `left`
  // values from there to the bucket's end.
  HEDDLE_DEVICE static Coded load_coded(const unsigned char* from, std::uint64_t at, std::uint64_t left) {
    return {load_bytes(from, kHeader),
            load_bytes(from + kHeader + at / 4 * kBits / 2, code_bytes(left, kBits))};
  }
  // Whether no encoder wrote it.
  HEDDLE_DEVICE static bool decode(const Coded& coded, std::uint64_t left, Group& group) {
    constexpr std::uint32_t kMask = (1U << kBits) - 1;
    constexpr std::uint32_t kMark = kNotFinite;
    bool is_bad = coded.scale >= kInfinityBits && coded.scale != kMark;
    if (left < 4 && coded.codes >> kBits * left != 0) is_bad = true;  // what is left of the last byte is 0
    HEDDLE_UNROLLED
    for (unsigned i = 0; i < 4; ++i) {
      const std::uint32_t code = coded.codes >> kBits * i & kMask;
      if (i < left && code > 2 * kLevels<kBits>) is_bad = true;
      const auto level = static_cast<std::int32_t>(code) - static_cast<std::int32_t>(kLevels<kBits>);
      group.values[i] = coded.scale < kInfinityBits ? value_of<kBits>(level, bits_as<float>(coded.scale))
                                                    : bits_as<float>(kMark);
    }
    return is_bad;
  }

  // Of four values, at their alignment.
  static constexpr unsigned kAlignment = sizeof(std::uint32_t);
  static constexpr unsigned kWhole = 4;
  HEDDLE_DEVICE static Coded load_four(const unsigned char* from, std::uint32_t at) {
    using Codes = std::conditional_t<kBits == 8, std::uint32_t,
                                     std::conditional_t<kBits == 4, std::uint16_t, std::uint8_t>>;
    return {load_element<std::uint32_t>(from), load_element<Codes>(from + kHeader + at / 4 * (kBits / 2))};
  }
  // Not 0: they are odd, and are decode()'s. That is what no encoder wrote, and a bucket without numbers.
  HEDDLE_DEVICE static std::uint32_t decode_four(const Coded& coded, Group& group) {
    HEDDLE_UNROLLED
    for (unsigned i = 0; i < 4; ++i) {
      // As the lowest bits of 2^23 a code is a float already; the difference is a level, which nothing
      // rounds.
      const float level = bits_as<float>(with_code(0x4B000000U, coded.codes, i)) -
                          (0x1p23F + static_cast<float>(kLevels<kBits>));
      group.values[i] = level * (1.0F / static_cast<float>(kLevels<kBits>)) * bits_as<float>(coded.scale);
    }
    // There is one code too many, of which all bits are set. Its complement is 0, from which the subtraction
    // of one borrows.
    constexpr std::uint32_t kLowest = kBits == 8 ? 0x01010101U : kBits == 4 ? 0x1111U : 0x55U;
    constexpr std::uint32_t kHighest = kLowest << (kBits - 1);
    const std::uint32_t too_many = (~coded.codes - kLowest) & coded.codes & kHighest;
    // From infinity's bits on, with a sign or without.
    constexpr std::uint32_t kSign = 0x80000000U;
    const std::uint32_t no_scale = (coded.scale | (coded.scale + (kSign - kInfinityBits))) & kSign;
    return too_many | no_scale;
  }

 private:
  static constexpr unsigned kStep = 4 * kThreads;

  // Code `i` in the lowest bits of a word, where it has zeros.
  HEDDLE_DEVICE static std::uint32_t with_code(std::uint32_t word, std::uint32_t codes, unsigned i) {
    if constexpr (kBits == 8) return permuted(codes, word, 0x7650U + i);
    return word | (codes >> kBits * i & ((1U << kBits) - 1));
  }

  // The groups of a thread, whole ones first. Returns their largest magnitude.
  HEDDLE_DEVICE static std::uint32_t load(const QuantiseArguments& a, const Part& part, unsigned thread,
                                          Group& own) {
    std::uint32_t largest = 0;
    const auto look_at = [&](const Group& group) {
      const std::uint32_t here = largest_of(group);
      largest = here > largest ? here : largest;
    };
    std::uint32_t at = 4 * thread;
    if (at < part.whole) {
      own = compensated_whole(a, part, at);
      look_at(own);
      HEDDLE_NOT_UNROLLED
      for (at += kStep; at < part.whole; at += kStep)
        look_at(compensated_whole(a, part, at));
    }
    HEDDLE_NOT_UNROLLED
    for (std::uint64_t rest = at; rest < part.count; rest += kStep) {
      const Group group = compensated<PlainSum>(a, part.first + rest, part.count - rest);
      if (rest == 4 * thread) own = group;
      look_at(group);
    }
    return largest;
  }

  HEDDLE_DEVICE static void code(const QuantiseArguments& a, const Part& part, std::uint32_t largest,
                                 unsigned char* to, unsigned thread, const Group& own, RandomKey& keys) {
    std::uint32_t at = 4 * thread;
    if (at < part.whole && is_ordinary(largest)) {
      const float scale = bits_as<float>(largest);
      const float inverse = 1.0F / scale;
      const std::uint64_t key = keys.at(part.position);
      Group group = own;
      HEDDLE_NOT_UNROLLED
      for (;;) {
        const std::uint32_t low = static_cast<std::uint32_t>(part.position) + at;
        store_codes<kBits / 2>(to + at / 4 * (kBits / 2), code_whole<kBits>(key, low, scale, inverse, group));
        if (a.left_out != nullptr)
          store_vector(reinterpret_cast<unsigned char*>(a.left_out + part.first + at),
                       bits_as<Vector>(group));
        at += kStep;
        if (at >= part.whole) break;
        group = compensated_whole(a, part, at);
      }
    }
    HEDDLE_NOT_UNROLLED
    for (std::uint64_t rest = at; rest < part.count; rest += kStep) {
      const std::uint64_t left = part.count - rest;
      Group group = rest == 4 * thread ? own : compensated<PlainSum>(a, part.first + rest, left);
      const std::uint32_t codes = code_group<kBits>(part.position + rest, left, largest, keys, group);
      unsigned char* const its = to + rest / 4 * kBits / 2;
      if (left >= 4)
        store_bytes(its, codes, kBits / 2);
      else
        store_bytes(its, codes, code_bytes(left, kBits));
      if (a.left_out != nullptr) store_group(a.left_out + part.first + rest, group, left);
    }
  }
};

}  // namespace heddle::gpu::kernels
