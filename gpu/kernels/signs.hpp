// The codec of one bit a value (src/compress/codec.hpp, `sign`; onebit): the host's bytes and values. A
// bucket's two scales are means, whose sums are of double and have an order that matters: value i is added to
// sum i mod 8, one after the other (src/compress/quantise.cpp). So a bucket is a warp's: sixteen of its lanes
// add, eight for each sign, what all have put into the block's memory, and waits for nobody else. Other warps
// have memory to themselves meanwhile.
#pragma once

#include <cmath>
#include <cstdint>

#include "gpu/kernels/operations.hpp"
#include "gpu/kernels/quantise.hpp"

namespace heddle::gpu::kernels {

inline constexpr unsigned kSignSums = 8;         // for each sign
inline constexpr unsigned kSignGroups = 4;       // that a lane has on their way at once
inline constexpr unsigned kSignRow = 4 * kWarp;  // values, of which a lane has a group
inline constexpr unsigned kSignStrip = kSignGroups * kSignRow;
// Values of a bucket that lie in the block's memory at once.
inline constexpr unsigned kSignTile = 2 * kSignStrip;

// What a warp has of the block's memory.
struct SignTile {
  // A line for each sum, where its values follow each other, so that an adding lane takes four with one load.
  // A little apart: then lanes that write values, or read a line, find each its own bank.
  static constexpr unsigned kLine = kSignTile / kSignSums + 4;
  alignas(sizeof(Vector)) float values[kSignSums * kLine];
  std::uint32_t scales[2];  // of values from 0 up, and of the negative ones

  // A lane's group of a row: in four lines that follow each other.
  HEDDLE_DEVICE static unsigned place(unsigned row, unsigned lane) {
    return lane % 2 * 4 * kLine + lane / 2 + row * (kSignRow / kSignSums);
  }
  HEDDLE_DEVICE void store(unsigned row, unsigned lane, const Group& group) {
    HEDDLE_UNROLLED
    for (unsigned i = 0; i < 4; ++i)
      values[place(row, lane) + i * kLine] = group.values[i];
  }
  HEDDLE_DEVICE Group load(unsigned row, unsigned lane) const {
    Group group;
    HEDDLE_UNROLLED
    for (unsigned i = 0; i < 4; ++i)
      group.values[i] = values[place(row, lane) + i * kLine];
    return group;
  }
};

struct SignShared {
  SignTile tiles[kWarps];
};

HEDDLE_DEVICE inline std::uint32_t mean_of(double sum, std::uint64_t count) {
  return count == 0 ? 0 : bits_as<std::uint32_t>(static_cast<float>(sum / static_cast<double>(count)));
}

struct Signs {
  using Shared = SignShared;
  static constexpr unsigned kBits = 1;
  static constexpr unsigned kHeader = 2 * sizeof(float);

  // Few buckets are spread over all blocks: the first warps of all have one before the second ones.
  HEDDLE_DEVICE static void quantise(const Block& block, const QuantiseArguments& a, Shared& shared) {
    const std::uint64_t bytes = Buckets<Signs>(a.count, a.bucket).bytes;
    const bool aligned = is_aligned(a);
    block.warps([&](const Warp& warp, unsigned w) {
      std::uint64_t b = block.number + w * block.of;
      for (std::uint64_t first = b * a.bucket; first < a.count;
           b += kWarps * block.of, first = b * a.bucket) {
        const std::uint64_t count = a.count - first < a.bucket ? a.count - first : a.bucket;
        code_bucket(warp, a, {first, count, a.codes + b * bytes, aligned}, shared.tiles[w]);
      }
    });
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

  // Of four values, at their alignment.
  static constexpr unsigned kAlignment = sizeof(std::uint32_t);
  static constexpr unsigned kWhole = 8;  // where so many are left all bits of the byte are codes
  HEDDLE_DEVICE static Coded load_four(const unsigned char* from, std::uint32_t at) {
    return {{load_element<std::uint32_t>(from), load_element<std::uint32_t>(from + sizeof(float))},
            from[kHeader + at / 8],
            at % 8};
  }
  // Not 0: they are odd, and are decode()'s. That is what no encoder wrote, and a bucket without numbers.
  HEDDLE_DEVICE static std::uint32_t decode_four(const Coded& coded, Group& group) {
    const std::uint32_t codes = coded.byte >> coded.shift;
    HEDDLE_UNROLLED
    for (unsigned i = 0; i < 4; ++i)
      group.values[i] = value_of(codes >> i & 1, coded.scales);
    return coded.scales[0] >= kInfinityBits || coded.scales[1] >= kInfinityBits ? 1 : 0;
  }

 private:
  struct Bucket {
    std::uint64_t first;  // value
    std::uint64_t count;
    unsigned char* to;
    bool aligned;  // its groups are whole vectors
  };

  // Of a bucket, its values from `first` of the vector on, of which there are `left`.
  struct Part {
    std::uint64_t first;
    std::uint32_t left;
    bool aligned;

    HEDDLE_DEVICE Part(const Bucket& bucket, std::uint64_t at)
        : first(bucket.first + at),
          left(static_cast<std::uint32_t>(bucket.count - at < kSignTile ? bucket.count - at : kSignTile)),
          aligned(bucket.aligned) {}
    // The strip that begins with this row.
    HEDDLE_DEVICE bool has_whole(unsigned row) const {
      return aligned && row * kSignRow + kSignStrip <= left;
    }
  };

  HEDDLE_DEVICE static float value_of(std::uint32_t bit, const std::uint32_t* scales) {
    return bits_as<float>(bit != 0 ? scales[1] ^ 0x80000000U : scales[0]);
  }

  HEDDLE_DEVICE static void code_bucket(const Warp& warp, const QuantiseArguments& a, const Bucket& bucket,
                                        SignTile& tile) {
    OfLane<std::uint32_t> signs;
    find_scales(warp, a, bucket, tile, signs);
    for (std::uint64_t at = 0; at < bucket.count; at += kSignTile) {
      const Part part(bucket, at);
      // Of a bucket of one tile it is there.
      if (bucket.count > kSignTile) load(warp, a, part, tile, signs);
      code(warp, a, part, bucket.to + kHeader + at / 8, tile, signs);
    }
  }

  // A part into the tile, with zeros behind its last value up to the end of a strip. Digit r of a lane's
  // signs, of four bits: which values of its group of row r are negative.
  HEDDLE_DEVICE static void load(const Warp& warp, const QuantiseArguments& a, const Part& part,
                                 SignTile& tile, OfLane<std::uint32_t>& signs) {
    warp.each([&](unsigned lane) {
      signs[lane] = 0;
      HEDDLE_NOT_UNROLLED
      for (unsigned row = 0; row * kSignRow < part.left; row += kSignGroups)
        signs[lane] |=
            (part.has_whole(row) ? load_strip(a, part, row, lane, tile) : load_rest(a, part, row, lane, tile))
            << 4 * row;
    });
  }

  // A lane's groups of the strip that begins with `row`. All loads are started before one is waited for.
  HEDDLE_DEVICE static std::uint32_t load_strip(const QuantiseArguments& a, const Part& part, unsigned row,
                                                unsigned lane, SignTile& tile) {
    const std::uint64_t at = part.first + row * kSignRow + 4 * lane;
    Group groups[kSignGroups];
    HEDDLE_UNROLLED
    for (unsigned g = 0; g < kSignGroups; ++g)
      groups[g] = load_whole(a.gradient + at + g * kSignRow);
    if (a.residual != nullptr) {
      Group kept[kSignGroups];
      HEDDLE_UNROLLED
      for (unsigned g = 0; g < kSignGroups; ++g)
        kept[g] = load_whole(a.residual + at + g * kSignRow);
      HEDDLE_UNROLLED
      for (unsigned g = 0; g < kSignGroups; ++g)
        for (unsigned i = 0; i < 4; ++i)
          groups[g].values[i] = PlainSum::apply(groups[g].values[i], kept[g].values[i]);
    }
    std::uint32_t signs = 0;
    HEDDLE_UNROLLED
    for (unsigned g = 0; g < kSignGroups; ++g) {
      tile.store(row + g, lane, groups[g]);
      signs |= signs_of(groups[g]) << 4 * g;
    }
    return signs;
  }

  // The same where not all is there, or groups are no vectors.
  HEDDLE_DEVICE static std::uint32_t load_rest(const QuantiseArguments& a, const Part& part, unsigned row,
                                               unsigned lane, SignTile& tile) {
    std::uint32_t signs = 0;
    HEDDLE_NOT_UNROLLED
    for (unsigned g = 0; g < kSignGroups; ++g) {
      const unsigned at = (row + g) * kSignRow + 4 * lane;
      const Group group =
          at < part.left ? compensated<PlainSum>(a, part.first + at, part.left - at) : Group{};
      tile.store(row + g, lane, group);
      signs |= signs_of(group) << 4 * g;
    }
    return signs;
  }

  HEDDLE_DEVICE static std::uint32_t signs_of(const Group& group) {
    std::uint32_t signs = 0;
    HEDDLE_UNROLLED
    for (unsigned i = 0; i < 4; ++i)
      if (group.values[i] < 0) signs |= 1U << i;
    return signs;
  }

  // Of a part's values, and of the zeros that follow them, those that belong to sum `lane`: of the eight sums
  // of values from 0 up, or of the eight of the negative ones' magnitudes. A NaN is in the first ones.
  HEDDLE_DEVICE static double add_line(const SignTile& tile, std::uint32_t left, unsigned lane, double sum) {
    const auto* line =
        reinterpret_cast<const unsigned char*>(tile.values + lane % kSignSums * SignTile::kLine);
    const bool of_negatives = lane >= kSignSums;
    const unsigned vectors = (left + 4 * kSignSums - 1) / (4 * kSignSums);
    for (unsigned v = 0; v < vectors; ++v) {
      const Group group = bits_as<Group>(load_vector(line + v * sizeof(Vector)));
      HEDDLE_UNROLLED
      for (unsigned i = 0; i < 4; ++i)
        if ((group.values[i] < 0) == of_negatives) sum += double{std::fabs(group.values[i])};
    }
    return sum;
  }

  // Leaves the signs of the last part.
  HEDDLE_DEVICE static void find_scales(const Warp& warp, const QuantiseArguments& a, const Bucket& bucket,
                                        SignTile& tile, OfLane<std::uint32_t>& signs) {
    OfLane<std::uint64_t> negatives;
    OfLane<double> sums;
    warp.alone([&](unsigned lane) {
      negatives[lane] = 0;
      sums[lane] = 0;
    });
    for (std::uint64_t at = 0; at < bucket.count; at += kSignTile) {
      const Part part(bucket, at);
      load(warp, a, part, tile, signs);
      warp.each([&](unsigned lane) {
        negatives[lane] += ones(signs[lane]);
        if (lane < 2 * kSignSums) sums[lane] = add_line(tile, part.left, lane, sums[lane]);
      });
    }
    // The order that the host's has: ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)).
    for (unsigned far = kSignSums / 2; far > 0; far /= 2)
      warp.add_far(sums, far);
    const std::uint64_t all_negatives = warp.sum([&](unsigned lane) { return negatives[lane]; });
    // Sums of numbers are numbers, since no vector is so long that they run over.
    const bool is_finite =
        warp.ballot([&](unsigned lane) { return !(sums[lane] <= Format<double>::kLargest); }) == 0;
    warp.each([&](unsigned lane) {
      if (lane != 0 && lane != kSignSums) return;
      const unsigned sign = lane / kSignSums;
      const std::uint64_t count = sign == 0 ? bucket.count - all_negatives : all_negatives;
      tile.scales[sign] = is_finite ? mean_of(sums[lane], count) : kNotFinite;
      store_bytes(bucket.to + sign * sizeof(float), tile.scales[sign], sizeof(float));
    });
  }

  // The codes of a part, and what they leave out.
  HEDDLE_DEVICE static void code(const Warp& warp, const QuantiseArguments& a, const Part& part,
                                 unsigned char* to, const SignTile& tile, OfLane<std::uint32_t>& signs) {
    const std::uint32_t scales[2] = {tile.scales[0], tile.scales[1]};
    const bool is_finite = scales[0] != kNotFinite;
    warp.alone([&](unsigned lane) {
      if (!is_finite) signs[lane] = 0;
      if (a.left_out == nullptr) return;
      HEDDLE_NOT_UNROLLED
      for (unsigned row = 0; row * kSignRow < part.left; row += kSignGroups)
        leave_out(a, part, row, lane, tile, is_finite, signs[lane] >> 4 * row, scales);
    });
    // Eight neighbours have four words of codes, of each of which they have a digit. Word w is then that of
    // lane w / 4 of them.
    warp.transpose_digits(signs);
    warp.alone([&](unsigned lane) {
      const unsigned word = lane % 8 * 4 + lane / 8;
      if (kWarp * word >= part.left) return;
      const unsigned bytes = (part.left - kWarp * word + 7) / 8;
      store_bytes(to + 4 * word, signs[lane], bytes < 4 ? bytes : 4);
    });
  }

  // Of a lane's groups of the strip that begins with `row`.
  HEDDLE_DEVICE static void leave_out(const QuantiseArguments& a, const Part& part, unsigned row,
                                      unsigned lane, const SignTile& tile, bool is_finite,
                                      std::uint32_t signs, const std::uint32_t* scales) {
    const auto lost = [&](unsigned g) {
      Group group = tile.load(row + g, lane);
      HEDDLE_UNROLLED
      for (unsigned i = 0; i < 4; ++i) {
        const float left = group.values[i] - value_of(signs >> (4 * g + i) & 1, scales);
        group.values[i] = is_finite ? left : 0.0F;
      }
      return group;
    };
    const unsigned at = row * kSignRow + 4 * lane;
    float* const to = a.left_out + part.first + at;
    if (part.has_whole(row)) {
      HEDDLE_UNROLLED
      for (unsigned g = 0; g < kSignGroups; ++g)
        store_vector(reinterpret_cast<unsigned char*>(to + g * kSignRow), bits_as<Vector>(lost(g)));
      return;
    }
    HEDDLE_NOT_UNROLLED
    for (unsigned g = 0; g < kSignGroups && at + g * kSignRow < part.left; ++g)
      store_group(to + g * kSignRow, lost(g), part.left - at - g * kSignRow);
  }
};

}  // namespace heddle::gpu::kernels
