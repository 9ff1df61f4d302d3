// Chunks there and back, in every form; the form that is chosen; damaged ones.
#include "sparse/wire.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <set>
#include <vector>

#include "../kernels/guarded_buffer.hpp"

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

template <typename Index>
std::vector<Index> narrowed(const std::vector<std::uint64_t>& indices) {
  std::vector<Index> result(indices.size());
  std::ranges::transform(indices, result.begin(), [](std::uint64_t i) { return static_cast<Index>(i); });
  return result;
}

// From an array at an odd address, to another.
template <typename Index>
void comes_back_as(const Sample& sample, Encoding encoding) {
  const std::vector<Index> indices = narrowed<Index>(sample.indices);
  Bytes unaligned(indices.size() * sizeof(Index) + 1);
  if (!indices.empty()) std::memcpy(unaligned.data() + 1, indices.data(), indices.size() * sizeof(Index));
  SparseView view = sample.view;
  view.index_type = sizeof(Index) == 4 ? IndexType::u32 : IndexType::u64;
  view.indices = unaligned.data() + 1;
  Bytes wire(8, std::byte{0x55});  // it need not be the first
  encode_chunk(view, sample.range, encoding, wire);
  ASSERT_EQ(wire.size() - 8, encoded_bytes(view, sample.range, encoding)) << encoding_name(encoding);
  wire.resize(wire.size() + 16, std::byte{0x77});  // nor the last
  const auto chunk = parse_chunk(std::span(wire).subspan(8), sample.view.dimension);
  ASSERT_TRUE(chunk.ok()) << encoding_name(encoding) << ": " << chunk.status().message();
  EXPECT_EQ(chunk->bytes, wire.size() - 24);
  EXPECT_EQ(chunk->encoding, encoding);
  EXPECT_EQ(chunk->value_type, sample.view.value_type);
  EXPECT_EQ(chunk->first, sample.range.first);
  EXPECT_EQ(chunk->span, sample.range.span);
  ASSERT_EQ(chunk->count, indices.size());
  ASSERT_TRUE(std::ranges::equal(chunk->values, sample.values));
  const std::size_t bytes = indices.size() * sizeof(Index);
  test::GuardedBuffer buffer(bytes + 8);
  std::uint8_t* out = buffer.place(bytes, bytes % 3);
  const Status status = unpack_indices(chunk.value(), view.index_type, out);
  ASSERT_TRUE(status.ok()) << encoding_name(encoding) << ": " << status.message();
  ASSERT_TRUE(buffer.surroundings_intact());
  ASSERT_EQ(bytes == 0 ? 0 : std::memcmp(out, indices.data(), bytes), 0) << encoding_name(encoding);
}

void comes_back(const Sample& sample, Encoding encoding) {
  if (encoded_bytes(sample.view, sample.range, encoding) == SIZE_MAX) {
    ASSERT_EQ(encoding, Encoding::dense);
    ASSERT_NE(sample.indices.size(), sample.range.span);
    return;
  }
  comes_back_as<std::uint64_t>(sample, encoding);
  if (sample.view.dimension <= std::uint64_t{1} << 32) comes_back_as<std::uint32_t>(sample, encoding);
}

TEST(Wire, EveryFormComesBack) {
  std::uint64_t seed = 0;
  for (const DType type : {DType::f16, DType::bf16, DType::f32, DType::f64, DType::i32, DType::i64}) {
    for (const std::uint64_t span : {1UL, 7UL, 8UL, 9UL, 1000UL, 65536UL, 65537UL}) {
      for (const std::size_t share : {0, 1, 5, 900, 30'000, 100'000}) {
        const std::size_t count = share == 100'000 ? span : share;
        if (count > span) continue;
        if (count > 1000 && type != DType::bf16) continue;  // long enough already
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

// Gaps of every length in bytes, next to each other, and 32-bit indices up to the last.
TEST(Wire, GapsOfEveryLength) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 300; ++round) {
    const bool wide = round % 2 == 0;
    std::vector<std::uint64_t> indices;
    const unsigned most = static_cast<unsigned>(random() % (wide ? 56 : 24)) + 1;
    std::uint64_t at = 0;
    for (int k = 0; k < 200; ++k) {
      const std::uint64_t gap = random() >> (64 - 1 - random() % most);
      if (gap > (wide ? std::uint64_t{1} << 63 : std::uint64_t{1} << 32) - 1 - at) break;
      at += gap;
      indices.push_back(at++);
    }
    if (!wide) indices.push_back(0xffffffff);
    Sample sample(0, 1, 0, DType::i32, 1);
    sample.indices = indices;
    sample.values.resize(indices.size() * 4);
    sample.range = {indices[0], indices.back() + 1 - indices[0], 0, indices.size()};
    sample.view = {indices.back() + 1, indices.size(),        IndexType::u64,
                   DType::i32,         sample.indices.data(), sample.values.data()};
    ASSERT_NO_FATAL_FAILURE(comes_back(sample, Encoding::delta)) << round;
    ASSERT_NO_FATAL_FAILURE(comes_back(sample, Encoding::list)) << round;
  }
}

TEST(Wire, WhatDoesNotFit32BitsIsRefused) {
  const Sample sample((std::uint64_t{1} << 32) - 4, 5, 5, DType::f32, 1);
  for (const Encoding encoding : kAll) {
    Bytes wire;
    encode_chunk(sample.view, sample.range, encoding, wire);
    const auto chunk = parse_chunk(wire, sample.view.dimension);
    ASSERT_TRUE(chunk.ok());
    std::uint64_t room[5];
    EXPECT_FALSE(unpack_indices(chunk.value(), IndexType::u32, room).ok());
    EXPECT_TRUE(unpack_indices(chunk.value(), IndexType::u64, room).ok());
  }
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
  std::vector<std::uint64_t> indices(chunk->count + 1, 77);
  std::vector<std::uint32_t> narrow(chunk->count + 1, 77);
  const Status status = unpack_indices(chunk.value(), IndexType::u64, indices.data());
  ASSERT_EQ(unpack_indices(chunk.value(), IndexType::u32, narrow.data()).ok(), status.ok());
  ASSERT_EQ(indices.back(), 77U);
  ASSERT_EQ(narrow.back(), 77U);
  if (!status.ok()) {
    ASSERT_TRUE(status.message().starts_with("a damaged sparse chunk: ")) << status.message();
    return;
  }
  indices.pop_back();
  ASSERT_TRUE(std::ranges::is_sorted(indices));
  ASSERT_TRUE(std::ranges::adjacent_find(indices) == indices.end());
  if (!indices.empty()) {
    ASSERT_LT(indices.back(), dimension);
    ASSERT_GE(indices.front(), chunk->first);
    ASSERT_LT(indices.back() - chunk->first, chunk->span);
    ASSERT_EQ(narrow[chunk->count - 1], indices.back());
  }
  // No chunk says in more bytes what could be said in fewer.
  const SparseView view{dimension,         indices.size(), IndexType::u64,
                        chunk->value_type, indices.data(), chunk->values.data()};
  ASSERT_EQ(encoded_bytes(view, {chunk->first, chunk->span, 0, indices.size()}, chunk->encoding),
            chunk->bytes);
}

bool is_whole(const Bytes& wire, std::uint64_t dimension) {
  const auto chunk = parse_chunk(wire, dimension);
  if (!chunk.ok()) return false;
  std::vector<std::uint64_t> indices(chunk->count);
  return unpack_indices(chunk.value(), IndexType::u64, indices.data()).ok();
}

TEST(Wire, EveryCutIsNoticed) {
  for (const Encoding encoding : kAll) {
    const Sample sample(100, 60, encoding == Encoding::dense ? 60 : 11, DType::f32, 5);
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
  ASSERT_TRUE(is_whole(wire, span));
  // One byte more: 2 in the place of 2^63 is 2^64.
  wire[kChunkHeader + 8] |= std::byte{0x80};
  wire[kChunkHeader + 9] = std::byte{2};
  put(wire, 32, 10);
  EXPECT_FALSE(is_whole(wire, span));
  wire[kChunkHeader + 9] = std::byte{0};
  EXPECT_FALSE(is_whole(wire, span)) << "a superfluous byte";
}

TEST(Wire, SuperfluousBytesAreRefused) {
  std::vector<std::uint32_t> indices;
  for (std::uint32_t i = 0; i < 40; ++i)
    indices.push_back(199 + i * 200);
  const std::vector<float> values(40);
  const SparseView view{8000, 40, IndexType::u32, DType::f32, indices.data(), values.data()};
  Bytes wire;
  encode_chunk(view, {0, 8000, 0, 40}, Encoding::delta, wire);
  ASSERT_TRUE(is_whole(wire, 8000));
  for (std::size_t i = 0; i < 40; ++i) {
    Bytes changed = wire;
    changed[kChunkHeader + 2 * i + 1] = std::byte{0};  // 71 in two bytes instead of 199
    EXPECT_FALSE(is_whole(changed, 8000)) << i;
  }
}

TEST(Wire, EveryChangedByteIsHarmless) {
  std::mt19937_64 random(1);
  for (const Encoding encoding : kAll) {
    const std::uint64_t span = encoding == Encoding::dense ? 40 : 300;
    const Sample sample(100, span, 40, DType::bf16, 6);
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
