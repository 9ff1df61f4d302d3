// Chunks there and back, in every form; the form that is chosen; damaged ones.
#include "sparse/wire.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace heddle {
namespace {

using Bytes = std::vector<std::byte>;

constexpr Encoding kAll[] = {Encoding::dense, Encoding::list, Encoding::delta, Encoding::bitmap};

// Different indices in [first, first + span) with values that tell them apart.
struct Sample {
  Sample(std::uint64_t first, std::uint64_t span, std::size_t count, DType type, std::uint64_t seed)
      : range{first, span, 0, count} {
    std::mt19937_64 random(seed);
    std::set<std::uint64_t> chosen;
    while (chosen.size() < count)
      chosen.insert(first + random() % span);
    indices.assign(chosen.begin(), chosen.end());
    values.resize(count * dtype_size(type));
    for (std::byte& b : values)
      b = static_cast<std::byte>(random());
    view = {first + span, count, IndexType::u64, type, indices.data(), values.data()};
  }
  std::vector<std::uint64_t> indices;
  Bytes values;
  SparseView view;
  ChunkRange range;
};

void comes_back(const Sample& sample, Encoding encoding) {
  Bytes wire(8, std::byte{0x55});  // it need not be the first
  encode_chunk(sample.view, sample.range, encoding, wire);
  ASSERT_EQ(wire.size() - 8, encoded_bytes(sample.view, sample.range, encoding)) << encoding_name(encoding);
  wire.resize(wire.size() + 16, std::byte{0x77});  // nor the last
  const auto chunk = parse_chunk(std::span(wire).subspan(8), sample.view.dimension);
  ASSERT_TRUE(chunk.ok()) << encoding_name(encoding) << ": " << chunk.status().message();
  EXPECT_EQ(chunk->bytes, wire.size() - 24);
  EXPECT_EQ(chunk->encoding, encoding);
  EXPECT_EQ(chunk->value_type, sample.view.value_type);
  EXPECT_EQ(chunk->first, sample.range.first);
  EXPECT_EQ(chunk->span, sample.range.span);
  if (encoding != Encoding::dense) {
    std::vector<std::uint64_t> indices;
    unpack_indices(chunk.value(), indices);
    ASSERT_EQ(indices, sample.indices) << encoding_name(encoding);
    ASSERT_TRUE(std::ranges::equal(chunk->values, sample.values));
    return;
  }
  const std::size_t width = dtype_size(sample.view.value_type);
  Bytes expected(sample.range.span * width);
  for (std::size_t i = 0; i < sample.indices.size(); ++i)
    std::memcpy(expected.data() + (sample.indices[i] - sample.range.first) * width,
                sample.values.data() + i * width, width);
  ASSERT_TRUE(std::ranges::equal(chunk->values, expected));
}

TEST(Wire, EveryFormComesBack) {
  std::uint64_t seed = 0;
  for (const DType type : {DType::f16, DType::bf16, DType::f32, DType::f64, DType::i32, DType::i64}) {
    for (const std::uint64_t span : {1UL, 7UL, 8UL, 9UL, 1000UL, 65536UL, 65537UL}) {
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{5}, std::size_t{900}}) {
        if (count > span) continue;
        for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{12345}, std::uint64_t{1} << 50}) {
          const Sample sample(first, span, count, type, ++seed);
          for (const Encoding encoding : kAll)
            ASSERT_NO_FATAL_FAILURE(comes_back(sample, encoding)) << "span " << span << " count " << count;
        }
      }
    }
  }
}

TEST(Wire, IndicesFarApart) {
  for (const Encoding encoding : {Encoding::list, Encoding::delta}) {
    comes_back(Sample(3, (std::uint64_t{1} << 32) - 5, 300, DType::f32, 1), encoding);
    comes_back(Sample(3, std::uint64_t{1} << 62, 300, DType::f32, 2), encoding);
  }
  const Sample sample(0, std::uint64_t{1} << 62, 300, DType::f32, 3);
  EXPECT_EQ(encoded_bytes(sample.view, sample.range, Encoding::dense), SIZE_MAX);
  EXPECT_NE(smallest_encoding(sample.view, sample.range), Encoding::dense);
}

TEST(Wire, TheSmallestFormIsTaken) {
  constexpr std::uint64_t kSpan = 1 << 16;
  const auto chosen = [](std::size_t count) {
    const Sample sample(0, kSpan, count, DType::f32, count);
    const Encoding encoding = smallest_encoding(sample.view, sample.range);
    for (const Encoding other : kAll)
      EXPECT_LE(encoded_bytes(sample.view, sample.range, encoding),
                encoded_bytes(sample.view, sample.range, other));
    return encoding;
  };
  EXPECT_EQ(chosen(0), Encoding::list);
  EXPECT_EQ(chosen(600), Encoding::delta);
  EXPECT_EQ(chosen(20'000), Encoding::bitmap);
  EXPECT_EQ(chosen(kSpan), Encoding::dense);
}

// A 32-bit index and a value of 32 bits for each entry is what others send.
TEST(Wire, UniformPatternsTakeTwoThirdsOfPairs) {
  constexpr std::uint64_t kSpan = 1 << 20;
  const auto count = static_cast<std::size_t>(0.00781 * kSpan);
  const Sample sample(0, kSpan, count, DType::f32, 1);
  const std::size_t bytes =
      encoded_bytes(sample.view, sample.range, smallest_encoding(sample.view, sample.range));
  EXPECT_LE(static_cast<double>(bytes), 0.7 * 8 * static_cast<double>(count));
}

// ---- Damage

// Either an error with a sentence, or a chunk that keeps its promises.
void is_harmless(const Bytes& wire, std::uint64_t dimension) {
  const auto chunk = parse_chunk(wire, dimension);
  if (!chunk.ok()) {
    ASSERT_EQ(chunk.status().code(), Code::invalid_argument);
    ASSERT_TRUE(chunk.status().message().starts_with("a damaged sparse chunk: ")) << chunk.status().message();
    return;
  }
  ASSERT_LE(chunk->bytes, wire.size());
  if (chunk->encoding == Encoding::dense) return;
  std::vector<std::uint64_t> indices;
  unpack_indices(chunk.value(), indices);
  ASSERT_EQ(indices.size(), chunk->count);
  ASSERT_TRUE(std::ranges::is_sorted(indices));
  ASSERT_TRUE(std::ranges::adjacent_find(indices) == indices.end());
  if (!indices.empty()) {
    ASSERT_LT(indices.back(), dimension);
  }
}

TEST(Wire, EveryCutIsNoticed) {
  for (const Encoding encoding : kAll) {
    const Sample sample(100, 60, 11, DType::f32, 5);
    Bytes wire;
    encode_chunk(sample.view, sample.range, encoding, wire);
    for (std::size_t length = 0; length < wire.size(); ++length) {
      const Bytes cut(wire.begin(), wire.begin() + static_cast<std::ptrdiff_t>(length));
      EXPECT_FALSE(parse_chunk(cut, sample.view.dimension).ok())
          << encoding_name(encoding) << " cut to " << length;
    }
    EXPECT_FALSE(parse_chunk(wire, 159).ok()) << "of a larger vector";
  }
}

// A number of the header, at its place in docs/sparse.md.
void put(Bytes& wire, std::size_t at, std::uint64_t number) {
  std::memcpy(wire.data() + at, &number, sizeof number);
}

TEST(Wire, CountsWhoseBytesDoNotFitANumberAreRefused) {
  const Sample sample(0, 8, 8, DType::f32, 1);
  Bytes wire;
  encode_chunk(sample.view, sample.range, Encoding::dense, wire);
  ASSERT_TRUE(parse_chunk(wire, std::uint64_t{1} << 63).ok());
  for (const std::uint64_t many :
       {std::uint64_t{1} << 62, (std::uint64_t{1} << 62) + 8, (std::uint64_t{1} << 63) - 1}) {
    put(wire, 16, many);
    put(wire, 24, many);
    EXPECT_FALSE(parse_chunk(wire, std::uint64_t{1} << 63).ok()) << many;
  }
}

TEST(Wire, DistancesThatDoNotFitANumberAreRefused) {
  const std::uint64_t span = std::uint64_t{1} << 63;
  const std::uint64_t last = span - 1;  // nine bytes of seven bits
  const float value = 1;
  const SparseView view{span, 1, IndexType::u64, DType::f32, &last, &value};
  Bytes wire;
  encode_chunk(view, {0, span, 0, 1}, Encoding::delta, wire);
  ASSERT_TRUE(parse_chunk(wire, span).ok());
  // One byte more: 2 in the place of 2^63 is 2^64.
  wire[kChunkHeader + 8] |= std::byte{0x80};
  wire[kChunkHeader + 9] = std::byte{2};
  put(wire, 32, 10);
  EXPECT_FALSE(parse_chunk(wire, span).ok());
  wire[kChunkHeader + 9] = std::byte{0};
  EXPECT_FALSE(parse_chunk(wire, span).ok()) << "a superfluous byte";
}

TEST(Wire, EveryChangedByteIsHarmless) {
  std::mt19937_64 random(1);
  for (const Encoding encoding : kAll) {
    const Sample sample(100, 300, 40, DType::bf16, 6);
    Bytes wire;
    encode_chunk(sample.view, sample.range, encoding, wire);
    for (std::size_t at = 0; at < wire.size(); ++at) {
      for (int value = 0; value < 256; ++value) {
        Bytes changed = wire;
        changed[at] = static_cast<std::byte>(value);
        ASSERT_NO_FATAL_FAILURE(is_harmless(changed, sample.view.dimension))
            << encoding_name(encoding) << " byte " << at;
      }
    }
    for (int round = 0; round < 20'000; ++round) {
      Bytes changed = wire;
      for (std::uint64_t k = random() % 6 + 1; k > 0; --k)
        changed[random() % changed.size()] = static_cast<std::byte>(random());
      ASSERT_NO_FATAL_FAILURE(is_harmless(changed, sample.view.dimension)) << encoding_name(encoding);
    }
  }
}

}  // namespace
}  // namespace heddle
