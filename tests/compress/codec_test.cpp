// What every codec promises: its bytes and none beyond, its bound, the mean where it rounds at random, NaN
// that stays visible, and the same bytes for every instruction set.
#include "compress/codec.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "compress/random.hpp"
#include "kernels/guarded_buffer.hpp"
#include "kernels/targets.hpp"
#include "samples.hpp"

namespace heddle {
namespace {

using test::GuardedBuffer;
using test::Kind;

constexpr Codec kAll[] = {Codec::exact, Codec::f16,   Codec::bf16,    Codec::qsgd8,
                          Codec::qsgd4, Codec::qsgd2, Codec::ternary, Codec::sign};
constexpr Codec kBuckets[] = {Codec::qsgd8, Codec::qsgd4, Codec::qsgd2, Codec::ternary, Codec::sign};
constexpr Codec kRandom[] = {Codec::qsgd8, Codec::qsgd4, Codec::qsgd2, Codec::ternary};
using test::kInfinity;
using test::kNan;

std::vector<std::byte> encoded(const CodecSettings& settings, const std::vector<float>& values,
                               std::uint64_t position = 0) {
  std::vector<std::byte> bytes(coded_bytes(settings, values.size()));
  encode(settings, values.data(), values.size(), position, bytes.data());
  return bytes;
}

std::vector<float> decoded(const CodecSettings& settings, const std::vector<std::byte>& bytes,
                           std::size_t n) {
  std::vector<float> values(n, 77);
  const Status status = decode(settings, bytes, values.data(), n);
  EXPECT_TRUE(status.ok()) << status.message();
  return values;
}

std::vector<float> there_and_back(const CodecSettings& settings, const std::vector<float>& values,
                                  std::uint64_t position = 0) {
  return decoded(settings, encoded(settings, values, position), values.size());
}

float largest_in_bucket(const CodecSettings& settings, const std::vector<float>& values, std::size_t i) {
  const std::size_t bucket = settings.bucket == 0 ? values.size() : settings.bucket;
  const std::size_t begin = i / bucket * bucket;
  float largest = 0;
  for (std::size_t k = begin; k < std::min(begin + bucket, values.size()); ++k)
    largest = std::max(largest, std::abs(values[k]));
  return largest;
}

void keeps_bound(const CodecSettings& settings, const std::vector<float>& values, const float* result) {
  float largest = 0;
  const bool is_bucketed = std::ranges::find(kBuckets, settings.codec) != std::end(kBuckets);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!is_bucketed) {
      largest = std::abs(values[i]);
    } else if (i == 0 || (settings.bucket != 0 && i % settings.bucket == 0)) {
      largest = largest_in_bucket(settings, values, i);
    }
    const double bound = error_bound(settings, largest);
    const double error = std::abs(static_cast<double>(result[i]) - static_cast<double>(values[i]));
    ASSERT_LE(error, bound) << codec_name(settings.codec) << " of " << values[i] << " at " << i << " gave "
                            << result[i];
    if (settings.codec == Codec::exact) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(result[i]), std::bit_cast<std::uint32_t>(values[i]));
    }
  }
}

// Buffers that end at an inaccessible page, or a few bytes before it, with marks around.
void stays_in_bounds(const CodecSettings& settings, const std::vector<float>& values, std::size_t gap) {
  const std::size_t n = values.size();
  const std::size_t size = coded_bytes(settings, n);
  GuardedBuffer in(n * sizeof(float));
  GuardedBuffer wire(size);
  GuardedBuffer out(n * sizeof(float));
  const std::size_t float_gap = gap * sizeof(float);
  auto* from = reinterpret_cast<float*>(in.place(n * sizeof(float), float_gap));
  if (n > 0) std::memcpy(from, values.data(), n * sizeof(float));
  auto* bytes = reinterpret_cast<std::byte*>(wire.place(size, gap));
  auto* to = reinterpret_cast<float*>(out.place(n * sizeof(float), float_gap));
  encode(settings, from, n, 5, bytes);
  ASSERT_TRUE(wire.surroundings_intact()) << codec_name(settings.codec) << " wrote beyond its bytes, n " << n;
  const Status status = decode(settings, {bytes, size}, to, n);
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_TRUE(out.surroundings_intact()) << codec_name(settings.codec) << " wrote beyond its values, n " << n;
  keeps_bound(settings, values, to);
}

TEST(Codec, KeepsItsBytesAndItsBound) {
  for (const Codec codec : kAll) {
    for (const std::size_t n : test::kSizes) {
      for (const std::uint32_t bucket : {1024U, 0U, 1U, 13U, 3000U}) {
        if (n == 100000 && bucket == 1) continue;
        for (const Kind kind : test::kKinds) {
          const CodecSettings settings{codec, bucket, n + bucket};
          ASSERT_NO_FATAL_FAILURE(stays_in_bounds(settings, test::sample(kind, n, n + 1), n % 4));
        }
      }
    }
    for (std::size_t gap = 0; gap < 9; ++gap)
      ASSERT_NO_FATAL_FAILURE(stays_in_bounds({codec, 100, 3}, test::sample(Kind::uniform, 333, gap), gap));
  }
}

TEST(Codec, TakesTheBytesThatTheDocumentSays) {
  EXPECT_EQ(coded_bytes({Codec::exact}, 1000), 4000U);
  EXPECT_EQ(coded_bytes({Codec::f16}, 1000), 2000U);
  EXPECT_EQ(coded_bytes({Codec::bf16}, 1001), 2002U);
  EXPECT_EQ(coded_bytes({Codec::qsgd8, 100}, 250), 3 * 4 + 250U);
  EXPECT_EQ(coded_bytes({Codec::qsgd4, 99}, 100), 2 * 4 + 50 + 1U);
  EXPECT_EQ(coded_bytes({Codec::ternary, 1024}, 2049), 3 * 4 + 512 + 1U);
  EXPECT_EQ(coded_bytes({Codec::sign, 0}, 1025), 8 + 129U);
  for (const Codec codec : kAll)
    EXPECT_EQ(coded_bytes({codec}, 0), 0U);
}

// Codes at known places: the first value in the lowest bits, and zero in the middle.
TEST(Codec, LaysOutCodesAsTheDocumentSays) {
  const std::vector<float> values = {2, -2, 0, 2, -2};
  const auto codes = [&](Codec codec) {
    const auto bytes = encoded({codec}, values);
    std::vector<int> result;
    for (const std::byte b : bytes)
      result.push_back(static_cast<int>(b));
    return result;
  };
  EXPECT_EQ(codes(Codec::qsgd8), (std::vector<int>{0, 0, 0, 0x40, 254, 0, 127, 254, 0}));
  EXPECT_EQ(codes(Codec::qsgd4), (std::vector<int>{0, 0, 0, 0x40, 0x0E, 0xE7, 0x00}));
  EXPECT_EQ(codes(Codec::ternary), (std::vector<int>{0, 0, 0, 0x40, 0b10010010, 0b00}));
  // 4/3 and 2 as f32, then the bits of the negative values.
  EXPECT_EQ(codes(Codec::sign), (std::vector<int>{0xAB, 0xAA, 0xAA, 0x3F, 0, 0, 0, 0x40, 0b10010}));
}

// By a program of its own, in integers and single steps of f32, across the place where the key changes.
TEST(Codec, DrawsAsTheDocumentSays) {
  const std::vector<float> values = {0.3F, -0.7F, 1.5F, -0.1F, 0.9F, -1.2F, 0.05F, 0.6F};
  const std::vector<int> expected[] = {
      {152, 68, 254, 119, 203, 25, 132, 178}, {8, 4, 14, 7, 11, 1, 8, 10}, {1, 0, 2, 1, 1, 0, 1, 2}};
  const Codec codecs[] = {Codec::qsgd8, Codec::qsgd4, Codec::ternary};
  for (int k = 0; k < 3; ++k) {
    const int levels = k == 0 ? 127 : k == 1 ? 7 : 1;
    const auto result = there_and_back({codecs[k], 1024, 42}, values, (std::uint64_t{1} << 33) - 3);
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_EQ(std::lround(result[i] / 1.5F * static_cast<float>(levels)) + levels, expected[k][i])
          << k << " " << i;
  }
}

std::uint32_t drawn(RandomKey key, std::uint32_t position) {
  std::uint32_t x = position ^ key.first;
  x = (x ^ (x >> 17)) * 0xED5AD4BBU + key.second;
  x = (x ^ (x >> 11)) * 0xAC4C1B51U;
  x = (x ^ (x >> 15)) * 0x31848BABU;
  return ((x ^ (x >> 14)) >> 8) | 1;
}

// Down where the fraction is what was drawn, up where it is anything more.
TEST(Codec, RoundsUpExactlyWhereTheFractionIsAboveTheDraw) {
  constexpr std::uint64_t kSeed = 77;
  constexpr std::size_t kValues = 2000;
  std::vector<float> draws(kValues + 1, 1.0F);
  std::vector<float> above(kValues + 1, 1.0F);  // the last is the scale
  for (std::size_t i = 0; i < kValues; ++i) {
    draws[i] = static_cast<float>(drawn(random_key(kSeed, i), static_cast<std::uint32_t>(i))) * 0x1p-24F;
    above[i] = -std::nextafter(draws[i], 2.0F);
  }
  const auto down = there_and_back({Codec::ternary, 0, kSeed}, draws);
  const auto up = there_and_back({Codec::ternary, 0, kSeed}, above);
  for (std::size_t i = 0; i < kValues; ++i) {
    ASSERT_EQ(down[i], 0) << i;
    ASSERT_EQ(up[i], -1) << i;
  }
}

TEST(Codec, RoundsHalvesToEvenAndOverflowsToInfinity) {
  const std::vector<float> values = {1 + 0x1p-11F, 1 + 0x3p-11F, 65519.996F, 65520,      -65520,
                                     0x1p-25F,     0x1.8p-24F,   0x1p-24F,   -kInfinity, -0.0F};
  const std::vector<float> expected = {1, 1 + 0x1p-9F, 65504,    kInfinity,  -kInfinity,
                                       0, 0x1p-23F,    0x1p-24F, -kInfinity, -0.0F};
  const auto result = there_and_back({Codec::f16}, values);
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(std::bit_cast<std::uint32_t>(result[i]), std::bit_cast<std::uint32_t>(expected[i]))
        << values[i];
  const auto brain = there_and_back({Codec::bf16}, {1 + 0x1p-8F, 1 + 0x3p-8F, 0x1.FEFFFEp127F, 0x1.FFp127F});
  EXPECT_EQ(brain, (std::vector<float>{1, 1 + 0x1p-6F, 0x1.FEp127F, kInfinity}));
  EXPECT_TRUE(std::isinf(error_bound({Codec::f16}, 65520)));
  EXPECT_FALSE(std::isinf(error_bound({Codec::f16}, 65519)));
  EXPECT_TRUE(std::isinf(error_bound({Codec::bf16}, 0x1.FFp127)));
  for (const Codec codec : {Codec::qsgd8, Codec::qsgd4, Codec::qsgd2, Codec::ternary, Codec::sign}) {
    EXPECT_TRUE(std::isinf(error_bound({codec}, 6e38))) << "of two values of 3e38, which are no sum in float";
    EXPECT_FALSE(std::isinf(error_bound({codec}, 3e38)));
  }
  EXPECT_FALSE(std::isinf(error_bound({Codec::bf16}, 0x1.FEFFFEp127)));
}

TEST(Codec, EveryHalfComesBack) {
  for (const Codec codec : {Codec::f16, Codec::bf16}) {
    std::vector<std::byte> bytes;
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
      const std::uint32_t exponent = codec == Codec::f16 ? 0x7C00 : 0x7F80;
      if ((bits & exponent) == exponent && (bits & ~exponent & 0x7FFF) != 0) continue;  // NaN
      bytes.push_back(static_cast<std::byte>(bits));
      bytes.push_back(static_cast<std::byte>(bits >> 8));
    }
    EXPECT_EQ(encoded({codec}, decoded({codec}, bytes, bytes.size() / 2)), bytes);
  }
}

// Deviation of the mean of many draws at once, in standard deviations of that mean.
double deviation(Codec codec, float value, std::uint64_t seed) {
  constexpr std::size_t kBucket = 1024;
  constexpr std::size_t kValues = 256 * kBucket;
  std::vector<float> values(kValues, value);
  for (std::size_t i = 0; i < kValues; i += kBucket)
    values[i] = 1;  // the scale
  const auto result = there_and_back({codec, kBucket, seed}, values, seed << 20);
  const double levels = codec == Codec::qsgd8 ? 127 : codec == Codec::qsgd4 ? 7 : 1;
  const double exact = static_cast<double>(value) * levels;
  const double fraction = exact - std::floor(exact);
  double sum = 0;
  std::size_t count = 0;
  for (std::size_t i = 0; i < kValues; ++i) {
    if (i % kBucket == 0) continue;
    sum += (static_cast<double>(result[i]) - static_cast<double>(value)) * levels;
    ++count;
  }
  const double n = static_cast<double>(count);
  return sum / n / std::sqrt(fraction * (1 - fraction) / n);
}

TEST(Codec, RandomRoundingHasTheRightMean) {
  for (const Codec codec : kRandom)
    for (const float value : {0.001F, -0.003F, 0.11F, 0.4999F, -0.75F, 0.997F})
      for (const std::uint64_t seed : {1U, 2U, 99U})
        EXPECT_LT(std::abs(deviation(codec, value, seed)), 4.5)
            << codec_name(codec) << " " << value << " " << seed;
}

// How often two draws of a half agree; unrelated ones do so half of the time.
double agreement(const std::vector<float>& a, const std::vector<float>& b, std::size_t shift) {
  std::size_t same = 0;
  for (std::size_t i = 0; i + shift < a.size(); ++i)
    same += static_cast<std::size_t>(a[i] == b[i + shift]);
  return static_cast<double>(same) / static_cast<double>(a.size() - shift);
}

TEST(Codec, DrawsOfOtherSeedsAndPositionsAreUnrelated) {
  std::vector<float> values(1 << 18, 0.5F);
  values[0] = 1;
  const auto draw = [&](std::uint64_t seed, std::uint64_t position) {
    return there_and_back({Codec::ternary, 0, seed}, values, position);
  };
  const auto first = draw(7, 0);
  for (const std::size_t shift : {1, 2, 3, 4, 8, 16, 64, 1024})
    EXPECT_NEAR(agreement(first, first, shift), 0.5, 0.005) << shift;
  for (const std::uint64_t seed : {6U, 8U, 1U << 20})
    for (const std::size_t shift : {0, 1, 2, 16})
      EXPECT_NEAR(agreement(first, draw(seed, 0), shift), 0.5, 0.005) << seed << " " << shift;
  EXPECT_NEAR(agreement(first, draw(7, std::uint64_t{1} << 32), 0), 0.5, 0.005);
  EXPECT_NEAR(agreement(first, draw(7, std::uint64_t{1} << 63), 0), 0.5, 0.005);
  EXPECT_EQ(first, draw(7, 0));
}

TEST(Codec, PartsGiveTheCodesOfTheWhole) {
  const auto values = test::sample(Kind::gradient, 5000, 4);
  for (const Codec codec : kBuckets) {
    for (const std::uint64_t position :
         {std::uint64_t{0}, (std::uint64_t{1} << 32) - 1501, ~std::uint64_t{0} - 77}) {
      const CodecSettings settings{codec, 250, 12};
      std::vector<std::byte> parts;
      for (std::size_t at = 0; at < values.size(); at += 1250) {
        const std::vector<float> part(values.begin() + static_cast<std::ptrdiff_t>(at),
                                      values.begin() + static_cast<std::ptrdiff_t>(at + 1250));
        const auto bytes = encoded(settings, part, position + at);
        parts.insert(parts.end(), bytes.begin(), bytes.end());
      }
      EXPECT_EQ(parts, encoded(settings, values, position)) << codec_name(codec);
    }
  }
}

TEST(Codec, WhatIsNotFiniteStaysVisible) {
  for (const Codec codec : kBuckets) {
    for (const float bad : {kNan, -kNan, kInfinity, -kInfinity, std::bit_cast<float>(0x7F800001U)}) {
      for (const std::size_t at : {100, 163, 199}) {
        auto values = test::sample(Kind::uniform, 300, 8);
        values[at] = bad;
        const auto result = there_and_back({codec, 100, 1}, values);
        for (std::size_t i = 0; i < 300; ++i)
          ASSERT_EQ(std::isnan(result[i]), i / 100 == 1) << codec_name(codec) << " value " << i;
      }
    }
  }
  for (const Codec codec : {Codec::exact, Codec::f16, Codec::bf16}) {
    const auto result =
        there_and_back({codec}, {1, kNan, kInfinity, -kInfinity, std::bit_cast<float>(0x7F800001U)});
    EXPECT_EQ(result[0], 1);
    EXPECT_TRUE(std::isnan(result[1]));
    EXPECT_EQ(result[2], kInfinity);
    EXPECT_EQ(result[3], -kInfinity);
    EXPECT_TRUE(std::isnan(result[4])) << codec_name(codec);
  }
}

TEST(Codec, ZerosGiveZeros) {
  for (const Codec codec : kAll) {
    for (const float zero : {0.0F, -0.0F}) {
      const auto result = there_and_back({codec, 64, 5}, std::vector<float>(1000, zero));
      EXPECT_TRUE(std::ranges::all_of(result, [](float v) { return v == 0; })) << codec_name(codec);
      if (std::ranges::find(kBuckets, codec) == std::end(kBuckets)) continue;
      EXPECT_FALSE(std::ranges::any_of(result, [](float v) { return std::signbit(v); })) << codec_name(codec);
    }
  }
}

TEST(Codec, LevelsThatAreMetAreKept) {
  for (const Codec codec : kRandom) {
    for (const float scale : {1.0F, 0x1.FFFFFEp127F, 0x1p-149F, 3e-39F}) {
      std::vector<float> values;
      for (int i = 0; i < 1000; ++i)
        values.push_back(i % 3 == 0 ? scale : i % 3 == 1 ? -scale : 0.0F);
      EXPECT_EQ(there_and_back({codec, 1024, 3}, values), values) << codec_name(codec) << " " << scale;
    }
  }
}

TEST(Codec, SignsDecodeAsTheMeans) {
  const auto values = test::sample(Kind::gradient, 1000, 21);
  const auto result = there_and_back({Codec::sign, 300}, values);
  for (std::size_t begin = 0; begin < 1000; begin += 300) {
    double sums[2] = {};
    double counts[2] = {};
    const std::size_t end = std::min<std::size_t>(begin + 300, 1000);
    for (std::size_t i = begin; i < end; ++i) {
      sums[values[i] < 0] += static_cast<double>(values[i]);
      ++counts[values[i] < 0];
    }
    for (std::size_t i = begin; i < end; ++i)
      ASSERT_FLOAT_EQ(result[i], static_cast<float>(sums[values[i] < 0] / counts[values[i] < 0]));
  }
}

std::uint64_t fingerprint(std::span<const std::byte> bytes, std::uint64_t hash = 14695981039346656037ULL) {
  for (const std::byte b : bytes)
    hash = (hash ^ static_cast<std::uint64_t>(b)) * 1099511628211ULL;
  return hash;
}

// Of bytes and values for odd sizes and all kinds of values.
std::uint64_t fingerprint_of(Codec codec) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const std::size_t n : {1, 31, 1000, 2047}) {
    for (const Kind kind : test::kKinds) {
      auto values = test::sample(kind, n, n);
      if (kind == Kind::gradient) values[n / 2] = kNan;
      const CodecSettings settings{codec, 500, 17};
      const auto bytes = encoded(settings, values, (std::uint64_t{1} << 32) - 100);
      const auto result = decoded(settings, bytes, n);
      hash = fingerprint(std::as_bytes(std::span(result)), fingerprint(bytes, hash));
    }
  }
  return hash;
}

TEST(Codec, EveryInstructionSetGivesTheSameBits) {
  const auto targets = test::runnable_targets();
  ASSERT_FALSE(targets.empty());
  for (const Codec codec : kAll) {
    const std::uint64_t expected = fingerprint_of(codec);
    for (const std::int64_t target : targets) {
      const test::ScopedTarget scope(target);
      EXPECT_EQ(fingerprint_of(codec), expected) << codec_name(codec) << " with " << hwy::TargetName(target);
    }
  }
}

// Other machines, compilers and versions must write the same: these change only with the format.
TEST(Codec, BitsAreThoseOfTheFormat) {
  constexpr std::uint64_t kExpected[] = {6461900647736491881U,  16947878202242230032U, 5852189001817931165U,
                                         15881247925999443025U, 8090613789111245043U,  17475064085523810957U,
                                         17475064085523810957U, 18101774104820999398U};
  for (int i = 0; i < kCodecCount; ++i)
    EXPECT_EQ(fingerprint_of(static_cast<Codec>(i)), kExpected[i]) << codec_name(static_cast<Codec>(i));
}

}  // namespace
}  // namespace heddle
