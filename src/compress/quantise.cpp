// The loops of the quantising codecs. Built without contraction into fused multiply-add, and every expression
// on a value is the same in vectors and in what is left over.
#include "engine/kernels/targets.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "compress/kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/quantise.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "compress/mask_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace heddle::compress::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Ints = hn::RebindToSigned<Floats>;
using Words = hn::RebindToUnsigned<Floats>;
using Codes = hn::Rebind<std::uint8_t, Floats>;
constexpr std::size_t kLanes = hn::MaxLanes(Floats());

std::uint32_t largest(const float* values, std::size_t n) {
  const Floats d;
  const Ints di;
  const auto mask = hn::Set(di, static_cast<std::int32_t>(kMagnitudeBits));
  auto largest = hn::Zero(di);
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    largest = hn::Max(largest, hn::And(hn::BitCast(di, hn::LoadU(d, values + i)), mask));
  auto result = static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(di, largest)));
  for (; i < n; ++i)
    result = std::max(result, std::bit_cast<std::uint32_t>(values[i]) & kMagnitudeBits);
  return result;
}

// C. Wellons' triple32 (github.com/skeeto/hash-prospector), keyed before its first and its second step: one
// key alone would let two seeds draw the same numbers in another order.
HWY_INLINE hn::Vec<Words> mix(RandomKey key, hn::Vec<Words> position) {
  const Words d;
  auto x = hn::Xor(position, hn::Set(d, key.first));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<17>(x)), hn::Set(d, 0xED5AD4BBU));
  x = hn::Add(x, hn::Set(d, key.second));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<11>(x)), hn::Set(d, 0xAC4C1B51U));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<15>(x)), hn::Set(d, 0x31848BABU));
  return hn::Xor(x, hn::ShiftRight<14>(x));
}

HWY_INLINE hn::Vec<Codes> quantise_lanes(hn::Vec<Floats> v, float scale, std::uint32_t levels, RandomKey key,
                                         hn::Vec<Words> position) {
  const Floats d;
  const Ints di;
  const Words du;
  // A true division: its result is at most 1 for every scale, subnormal ones included.
  const auto level = hn::Mul(hn::Div(hn::Abs(v), hn::Set(d, scale)), hn::Set(d, static_cast<float>(levels)));
  const auto below = hn::ConvertTo(di, level);
  const auto fraction = hn::Sub(level, hn::ConvertTo(d, below));
  // An odd multiple of 2^-24: the mean is a half exactly.
  const auto drawn = hn::Or(hn::ShiftRight<8>(mix(key, position)), hn::Set(du, 1));
  const auto threshold = hn::Mul(hn::ConvertTo(d, hn::BitCast(di, drawn)), hn::Set(d, 0x1p-24F));
  const auto up = hn::VecFromMask(di, hn::RebindMask(di, hn::Lt(threshold, fraction)));  // -1 where it holds
  const auto magnitude = hn::Sub(below, up);
  const auto negative = hn::ShiftRight<31>(hn::BitCast(di, v));
  const auto signed_level = hn::Sub(hn::Xor(magnitude, negative), negative);
  return hn::DemoteTo(Codes(), hn::Add(signed_level, hn::Set(di, static_cast<std::int32_t>(levels))));
}

void to_codes(const float* values, std::size_t n, float scale, std::uint32_t levels, RandomKey key,
              std::uint32_t position, std::uint8_t* codes) {
  const Floats d;
  const Words du;
  const Codes dc;
  auto at = hn::Iota(du, position);
  const auto step = hn::Set(du, static_cast<std::uint32_t>(kLanes));
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes, at = hn::Add(at, step))
    hn::StoreU(quantise_lanes(hn::LoadU(d, values + i), scale, levels, key, at), dc, codes + i);
  if (i == n) return;
  float rest[kLanes] = {};
  std::uint8_t coded[kLanes];
  std::memcpy(rest, values + i, (n - i) * sizeof(float));
  hn::StoreU(quantise_lanes(hn::LoadU(d, rest), scale, levels, key, at), dc, coded);
  std::memcpy(codes + i, coded, n - i);
}

HWY_INLINE hn::Vec<Floats> value_lanes(hn::Vec<Ints> code, float scale, std::uint32_t levels) {
  const Floats d;
  const auto level = hn::ConvertTo(d, hn::Sub(code, hn::Set(Ints(), static_cast<std::int32_t>(levels))));
  // The part of the scale first: it is 1 for the last level, and the product cannot run over.
  const auto part = hn::Mul(level, hn::Set(d, 1.0F / static_cast<float>(levels)));
  return hn::Mul(part, hn::Set(d, scale));
}
static_assert(127.0F * (1.0F / 127.0F) == 1.0F && 7.0F * (1.0F / 7.0F) == 1.0F);

std::uint32_t to_values(const std::uint8_t* codes, std::size_t n, float scale, std::uint32_t levels,
                        float* values) {
  const Floats d;
  const Ints di;
  const Codes dc;
  auto largest = hn::Zero(di);
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const auto code = hn::PromoteTo(di, hn::LoadU(dc, codes + i));
    largest = hn::Max(largest, code);
    hn::StoreU(value_lanes(code, scale, levels), d, values + i);
  }
  if (i < n) {
    std::uint8_t coded[kLanes] = {};
    float rest[kLanes];
    std::memcpy(coded, codes + i, n - i);
    const auto code = hn::PromoteTo(di, hn::LoadU(dc, coded));
    largest = hn::Max(largest, code);
    hn::StoreU(value_lanes(code, scale, levels), d, rest);
    std::memcpy(values + i, rest, (n - i) * sizeof(float));
  }
  return static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(di, largest)));
}

// Eight codes, a byte each, moved together by halves: from bytes to nibbles, to pairs of bits. For single
// bits one product moves bit 8i to bit 56 + i.
template <unsigned kBits>
HWY_INLINE std::uint32_t squeeze(std::uint64_t x) {
  if constexpr (kBits == 1) return static_cast<std::uint32_t>((x * 0x0102040810204080ULL) >> 56);
  if constexpr (kBits == 2) {
    x = (x | (x >> 6)) & 0x000F000F000F000FULL;
    x = (x | (x >> 12)) & 0x000000FF000000FFULL;
    return static_cast<std::uint32_t>(x | (x >> 24)) & 0xFFFFU;
  }
  x = (x | (x >> 4)) & 0x00FF00FF00FF00FFULL;
  x = (x | (x >> 8)) & 0x0000FFFF0000FFFFULL;
  return static_cast<std::uint32_t>(x | (x >> 16));
}

template <unsigned kBits>
HWY_INLINE std::uint64_t spread(std::uint64_t x) {
  if constexpr (kBits == 1) {
    x = (x * 0x0101010101010101ULL) & 0x8040201008040201ULL;
    return ((x + 0x7F7F7F7F7F7F7F7FULL) >> 7) & 0x0101010101010101ULL;
  }
  if constexpr (kBits == 2) {
    x = (x | (x << 24)) & 0x000000FF000000FFULL;
    x = (x | (x << 12)) & 0x000F000F000F000FULL;
    return (x | (x << 6)) & 0x0303030303030303ULL;
  }
  x = (x | (x << 16)) & 0x0000FFFF0000FFFFULL;
  x = (x | (x << 8)) & 0x00FF00FF00FF00FFULL;
  return (x | (x << 4)) & 0x0F0F0F0F0F0F0F0FULL;
}

template <unsigned kBits>
HWY_INLINE void pack_all(const std::uint8_t* HWY_RESTRICT codes, std::size_t n,
                         std::uint8_t* HWY_RESTRICT out) {
  std::uint64_t x = 0;
  const std::size_t groups = n / 8;
  for (std::size_t i = 0; i < groups; ++i) {
    std::memcpy(&x, codes + 8 * i, 8);
    const std::uint32_t packed = squeeze<kBits>(x);
    std::memcpy(out + kBits * i, &packed, kBits);
  }
  if (n % 8 == 0) return;
  x = 0;
  std::memcpy(&x, codes + 8 * groups, n % 8);
  const std::uint32_t packed = squeeze<kBits>(x);
  std::memcpy(out + kBits * groups, &packed, (n % 8 * kBits + 7) / 8);
}

template <unsigned kBits>
HWY_INLINE void unpack_all(const std::uint8_t* HWY_RESTRICT in, std::size_t n,
                           std::uint8_t* HWY_RESTRICT codes) {
  const std::size_t groups = n / 8;
  for (std::size_t i = 0; i < groups; ++i) {
    std::uint32_t packed = 0;
    std::memcpy(&packed, in + kBits * i, kBits);
    const std::uint64_t x = spread<kBits>(packed);
    std::memcpy(codes + 8 * i, &x, 8);
  }
  if (n % 8 == 0) return;
  std::uint32_t packed = 0;
  std::memcpy(&packed, in + kBits * groups, (n % 8 * kBits + 7) / 8);
  const std::uint64_t x = spread<kBits>(packed);
  std::memcpy(codes + 8 * groups, &x, n % 8);
}

void pack_codes(const std::uint8_t* codes, std::size_t n, unsigned bits, std::uint8_t* out) {
  if (bits == 1) pack_all<1>(codes, n, out);
  if (bits == 2) pack_all<2>(codes, n, out);
  if (bits == 4) pack_all<4>(codes, n, out);
}
void unpack_codes(const std::uint8_t* in, std::size_t n, unsigned bits, std::uint8_t* codes) {
  if (bits == 1) unpack_all<1>(in, n, codes);
  if (bits == 2) unpack_all<2>(in, n, codes);
  if (bits == 4) unpack_all<4>(in, n, codes);
}

// ---- Signs

// Partial sums, whose number is the same for every width of vectors: value i goes to sum i mod 8.
constexpr std::size_t kSums = 8;

struct Sums {
  double positive[kSums] = {};
  double negative[kSums] = {};
};

HWY_INLINE void add_signed(const float* values, std::size_t groups, Sums& sums) {
  const hn::CappedTag<double, kSums> d;
  const hn::Rebind<float, decltype(d)> df;
  constexpr std::size_t kWidth = hn::MaxLanes(d);
  constexpr std::size_t kVectors = kSums / kWidth;
  hn::Vec<decltype(d)> positive[kVectors];
  hn::Vec<decltype(d)> negative[kVectors];
  for (std::size_t k = 0; k < kVectors; ++k)
    positive[k] = negative[k] = hn::Zero(d);
  for (std::size_t i = 0; i < groups; ++i) {
    for (std::size_t k = 0; k < kVectors; ++k) {
      const auto v = hn::PromoteTo(d, hn::LoadU(df, values + i * kSums + k * kWidth));
      positive[k] = hn::Add(positive[k], hn::Max(v, hn::Zero(d)));
      negative[k] = hn::Sub(negative[k], hn::Min(v, hn::Zero(d)));
    }
  }
  for (std::size_t k = 0; k < kVectors; ++k) {
    hn::StoreU(positive[k], d, sums.positive + k * kWidth);
    hn::StoreU(negative[k], d, sums.negative + k * kWidth);
  }
}

SignSums split(const float* values, std::size_t n, std::uint8_t* bits) {
  Sums sums;
  add_signed(values, n / kSums, sums);
  const float* rest = values + n / kSums * kSums;
  for (std::size_t k = 0; k < n % kSums; ++k) {
    const double value = rest[k];
    (value < 0 ? sums.negative : sums.positive)[k] += value < 0 ? -value : value;
  }
  const auto total = [](const double* s) {
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
  };
  SignSums result{total(sums.positive), total(sums.negative), 0};
  const Floats d;
  std::size_t i = 0;
  for (; i + 64 <= n; i += 64) {
    const std::uint64_t word =
        word_of_masks(d, [=](std::size_t k) { return hn::Lt(hn::LoadU(d, values + i + k), hn::Zero(d)); });
    result.negatives += static_cast<std::size_t>(std::popcount(word));
    std::memcpy(bits + i / 8, &word, 8);
  }
  std::uint64_t word = 0;
  for (std::size_t k = i; k < n; ++k)
    word |= static_cast<std::uint64_t>(values[k] < 0) << (k - i);
  result.negatives += static_cast<std::size_t>(std::popcount(word));
  std::memcpy(bits + i / 8, &word, (n - i + 7) / 8);
  return result;
}

void join(const std::uint8_t* bits, std::size_t n, float positive, float negative, float* values) {
  const Floats d;
  const Words du;
  const Codes dc;
  const auto yes = hn::BitCast(du, hn::Set(d, -negative));
  const auto no = hn::BitCast(du, hn::Set(d, positive));
  constexpr std::size_t kBlock = 512;
  std::uint8_t codes[kBlock];
  for (std::size_t at = 0; at < n; at += kBlock) {
    const std::size_t count = std::min(kBlock, n - at);
    unpack_all<1>(bits + at / 8, count, codes);
    std::size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      const auto one = hn::PromoteTo(du, hn::LoadU(dc, codes + i));
      const auto is_negative = hn::Eq(one, hn::Set(du, 1));
      hn::StoreU(hn::BitCast(d, hn::IfThenElse(is_negative, yes, no)), d, values + at + i);
    }
    for (; i < count; ++i)
      values[at + i] = codes[i] == 1 ? -negative : positive;
  }
}

}  // namespace heddle::compress::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::compress {

HWY_EXPORT(largest);
HWY_EXPORT(to_codes);
HWY_EXPORT(to_values);
HWY_EXPORT(pack_codes);
HWY_EXPORT(unpack_codes);
HWY_EXPORT(split);
HWY_EXPORT(join);

std::uint32_t largest_magnitude(const float* values, std::size_t n) {
  return HWY_DYNAMIC_DISPATCH(largest)(values, n);
}
void quantise(const float* values, std::size_t n, float scale, std::uint32_t levels, RandomKey key,
              std::uint32_t position, std::uint8_t* codes) {
  HWY_DYNAMIC_DISPATCH(to_codes)(values, n, scale, levels, key, position, codes);
}
std::uint32_t dequantise(const std::uint8_t* codes, std::size_t n, float scale, std::uint32_t levels,
                         float* values) {
  return HWY_DYNAMIC_DISPATCH(to_values)(codes, n, scale, levels, values);
}
void pack(const std::uint8_t* codes, std::size_t n, unsigned bits, std::uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(pack_codes)(codes, n, bits, out);
}
void unpack(const std::uint8_t* in, std::size_t n, unsigned bits, std::uint8_t* codes) {
  HWY_DYNAMIC_DISPATCH(unpack_codes)(in, n, bits, codes);
}
SignSums split_signs(const float* values, std::size_t n, std::uint8_t* bits) {
  return HWY_DYNAMIC_DISPATCH(split)(values, n, bits);
}
void join_signs(const std::uint8_t* bits, std::size_t n, float positive, float negative, float* values) {
  HWY_DYNAMIC_DISPATCH(join)(bits, n, positive, negative, values);
}

}  // namespace heddle::compress
#endif
