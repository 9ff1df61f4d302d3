// The codec of one bit a value (src/compress/codec.hpp, `sign`; onebit): the host's bytes and values. A bucket's two scales are means, whose sums are of double and have an order
// that matters: value i is added to sum i mod 8, one after the other (src/compress/quantise.cpp). So sixteen threads add, eight for each sign, while the others of the block wait;
// other blocks have memory to themselves meanwhile.
#pragma once

#include <cstdint>

#include "gpu/kernels/quantise.hpp"

namespace heddle::gpu::kernels {

inline constexpr unsigned kSignSums = 8;             // for each sign
inline constexpr unsigned kSignTile = 4 * kThreads;  // values that lie in the block's memory at once

// A row for each sum, where its values follow each other, so that an adding thread takes four with one load. A little apart: then threads that write values, or take a column, find each
// its own bank.
inline constexpr unsigned kSignRow = kSignTile / kSignSums + 4;

struct SignShared {
  alignas(sizeof(Vector)) float values[kSignSums * kSignRow];
  double sums[2 * kSignSums];
  std::uint32_t negatives[kWarps];
  std::uint32_t warps[kWarps];
  std::uint32_t scales[2];  // of values from 0 up, and of the negative ones

  // Value `i` of the tile.
  HEDDLE_DEVICE float& value(unsigned i) { return values[i % kSignSums * kSignRow + i / kSignSums]; }
  HEDDLE_DEVICE float value(unsigned i) const { return values[i % kSignSums * kSignRow + i / kSignSums]; }
};

// From 0 up; in the order that the host's has.
HEDDLE_DEVICE inline double total_of(const double* sums) {
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

HEDDLE_DEVICE inline std::uint32_t mean_of(double sum, std::uint64_t count) {
  return count == 0 ? 0 : bits_as<std::uint32_t>(static_cast<float>(sum / static_cast<double>(count)));
}

// What thread `thread` of the adding ones adds of a value: of those from 0 up, or of the negative ones' magnitudes. What adds nothing adds 0, which leaves a sum as it is.
HEDDLE_DEVICE inline double part_of(float value, unsigned thread) {
  const float part = thread < kSignSums ? value : -value;
  return double{part > 0 ? part : 0};
}

struct Signs {
  using Shared = SignShared;
  static constexpr unsigned kBits = 1;
  static constexpr unsigned kHeader = 2 * sizeof(float);

  HEDDLE_DEVICE static void quantise(const Block& block, const QuantiseArguments& a, Shared& shared) {
    const Buckets<Signs> buckets(a.count, a.bucket);
    for (std::uint64_t b = block.number; b < buckets.number; b += block.of) {
      const std::uint64_t first = b * a.bucket;
      const std::uint64_t count = a.count - first < a.bucket ? a.count - first : a.bucket;
      unsigned char* const to = a.codes + b * buckets.bytes;
      find_scales(block, a, first, count, to, shared);
      for (std::uint64_t tile = 0; tile < count; tile += kSignTile) {
        // Of a bucket of one tile it is there.
        if (count > kSignTile)
          block.each([&](unsigned thread) { load(a, first, tile + 4 * thread, count, shared, thread); });
        block.each([&](unsigned thread) { code(a, first, tile, count, to, shared, thread); });
      }
    }
  }

  // As it was loaded: to do anything with it would be to wait for it. Two groups have one byte.
  struct Coded {
    std::uint32_t scales[2];
    std::uint32_t byte;
    unsigned shift;
  };
  HEDDLE_DEVICE static Coded load_coded(const unsigned char* from, std::uint64_t at, std::uint64_t /*left*/) {
    constexpr unsigned kWord = sizeof(float);
    Coded coded{{}, from[kHeader + at / 8], static_cast<unsigned>(at % 8)};
    if (reinterpret_cast<std::uintptr_t>(from) % kWord == 0) {
      coded.scales[0] = load_element<std::uint32_t>(from);
      coded.scales[1] = load_element<std::uint32_t>(from + kWord);
    } else {
      coded.scales[0] = load_each_byte(from, kWord);
      coded.scales[1] = load_each_byte(from + kWord, kWord);
    }
    return coded;
  }
  // Whether no encoder wrote it.
  HEDDLE_DEVICE static bool decode(const Coded& coded, std::uint64_t left, Group& group) {
    constexpr std::uint32_t kMark = kNotFinite;
    const std::uint32_t codes = coded.byte >> coded.shift;
    bool is_bad = (coded.scales[0] == kMark) != (coded.scales[1] == kMark);
    if (left < 8 && codes >> left != 0) is_bad = true;  // what is left of the last byte is 0
    HEDDLE_UNROLLED
    for (unsigned k = 0; k < 2; ++k)
      if (coded.scales[k] >= kInfinityBits && coded.scales[k] != kMark) is_bad = true;
    HEDDLE_UNROLLED
    for (unsigned i = 0; i < 4; ++i)
      group.values[i] = value_of(codes >> i & 1, coded.scales);
    return is_bad;
  }

 private:
  HEDDLE_DEVICE static float value_of(std::uint32_t bit, const std::uint32_t* scales) {
    return bits_as<float>(bit != 0 ? scales[1] ^ 0x80000000U : scales[0]);
  }

  // The four values from `at` on, or 0 behind the last one.
  HEDDLE_DEVICE static Group load(const QuantiseArguments& a, std::uint64_t first, std::uint64_t at,
                                  std::uint64_t count, Shared& shared, unsigned thread) {
    const Group group = at < count ? compensated<FloatSum>(a, first + at, count - at) : Group{};
    HEDDLE_UNROLLED
    for (unsigned i = 0; i < 4; ++i)
      shared.value(4 * thread + i) = group.values[i];
    return group;
  }

  // Of a tile's first `left` values, and of the zeros that follow them.
  HEDDLE_DEVICE static double add_row(const Shared& shared, std::uint64_t left, unsigned thread, double sum) {
    const auto* row = reinterpret_cast<const unsigned char*>(shared.values + thread % kSignSums * kSignRow);
    const unsigned vectors = (static_cast<unsigned>(left) + 4 * kSignSums - 1) / (4 * kSignSums);
    for (unsigned v = 0; v < vectors; ++v) {
      const Group group = bits_as<Group>(load_vector(row + v * sizeof(Vector)));
      HEDDLE_UNROLLED
      for (unsigned i = 0; i < 4; ++i)
        sum += part_of(group.values[i], thread);
    }
    return sum;
  }

  HEDDLE_DEVICE static void find_scales(const Block& block, const QuantiseArguments& a, std::uint64_t first,
                                        std::uint64_t count, unsigned char* to, Shared& shared) {
    Each<std::uint32_t> largest;
    Each<std::uint32_t> negatives;
    Each<double> sum;
    block.alone([&](unsigned thread) {
      largest[thread] = negatives[thread] = 0;
      sum[thread] = 0;
    });
    for (std::uint64_t tile = 0; tile < count; tile += kSignTile) {
      block.each([&](unsigned thread) {
        const Group group = load(a, first, tile + 4 * thread, count, shared, thread);
        const std::uint32_t here = largest_of(group);
        largest[thread] = here > largest[thread] ? here : largest[thread];
        HEDDLE_UNROLLED
        for (unsigned i = 0; i < 4; ++i)
          negatives[thread] += group.values[i] < 0 ? 1 : 0;
      });
      const std::uint64_t left = count - tile < kSignTile ? count - tile : kSignTile;
      block.each([&](unsigned thread) {
        if (thread < 2 * kSignSums) sum[thread] = add_row(shared, left, thread, sum[thread]);
      });
    }
    block.max_warps(largest, shared.warps);
    block.add_warps(negatives, shared.negatives);
    block.each([&](unsigned thread) {
      if (thread < 2 * kSignSums) shared.sums[thread] = sum[thread];
    });
    block.each([&](unsigned thread) {
      if (thread == 0) tell_scales(count, to, shared);
    });
  }

  HEDDLE_DEVICE static void tell_scales(std::uint64_t count, unsigned char* to, Shared& shared) {
    std::uint32_t largest = 0;
    std::uint64_t negatives = 0;
    for (unsigned w = 0; w < kWarps; ++w) {
      largest = shared.warps[w] > largest ? shared.warps[w] : largest;
      negatives += shared.negatives[w];
    }
    const bool is_finite = largest < kInfinityBits;
    shared.scales[0] = is_finite ? mean_of(total_of(shared.sums), count - negatives) : kNotFinite;
    shared.scales[1] = is_finite ? mean_of(total_of(shared.sums + kSignSums), negatives) : kNotFinite;
    store_bytes(to, shared.scales[0], sizeof(float));
    store_bytes(to + sizeof(float), shared.scales[1], sizeof(float));
  }

  // The codes of a tile, a byte for each thread of the first half, and what they leave out.
  HEDDLE_DEVICE static void code(const QuantiseArguments& a, std::uint64_t first, std::uint64_t tile,
                                 std::uint64_t count, unsigned char* to, const Shared& shared,
                                 unsigned thread) {
    const bool is_finite = shared.scales[0] != kNotFinite;
    if (tile + 8 * thread < count && 8 * thread < kSignTile) {
      std::uint32_t byte = 0;
      HEDDLE_UNROLLED
      for (unsigned i = 0; i < 8; ++i)
        byte |= (shared.value(8 * thread + i) < 0 ? 1U : 0U) << i;
      to[kHeader + tile / 8 + thread] = static_cast<unsigned char>(is_finite ? byte : 0);
    }
    const std::uint64_t at = tile + 4 * thread;
    if (a.left_out == nullptr || at >= count) return;
    Group lost{};
    HEDDLE_UNROLLED
    for (unsigned i = 0; i < 4; ++i) {
      const float value = shared.value(4 * thread + i);
      if (is_finite) lost.values[i] = value - value_of(value < 0 ? 1 : 0, shared.scales);
    }
    store_group(a.left_out + first + at, lost, count - at);
  }
};

}  // namespace heddle::gpu::kernels
