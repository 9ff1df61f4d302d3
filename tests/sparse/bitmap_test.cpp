// Bitmaps of streams beside what one would write down first, with every instruction set.
#include "sparse/bitmap.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "../kernels/guarded_buffer.hpp"
#include "../kernels/targets.hpp"
#include "sparse/streams.hpp"

namespace heddle::test {
namespace {

constexpr Pattern kPatterns[] = {Pattern::nothing, Pattern::uniform, Pattern::clustered, Pattern::everything};

std::vector<std::uint64_t> expected_words(const TestStream& stream) {
  std::vector<std::uint64_t> words(bitmap_words(stream.dimension));
  for (const std::uint64_t i : stream.indices)
    words[i / 64] |= std::uint64_t{1} << (i % 64);
  return words;
}

template <typename Body>
void with_streams(Body body) {
  for (const std::int64_t target : runnable_targets()) {
    const ScopedTarget scope(target);
    std::mt19937_64 random(1);
    for (const std::uint64_t dimension : {1, 63, 64, 65, 8191, 8192, 8193, 40'000}) {
      for (const Pattern pattern : kPatterns) {
        for (const IndexType index : {IndexType::u32, IndexType::u64}) {
          for (const DType type : {DType::bf16, DType::f32, DType::f64}) {
            SCOPED_TRACE(std::string(fold_target()) + " dimension " + std::to_string(dimension) +
                         " pattern " + std::to_string(static_cast<int>(pattern)) + " " + dtype_name(type));
            body(random_stream(pattern, dimension, index, type, Values::any_bits, dimension / 3, random),
                 random);
          }
        }
      }
    }
  }
}

TEST(Bitmap, MarksTheEntries) {
  with_streams([](const TestStream& stream, std::mt19937_64&) {
    const std::vector<std::uint64_t> expected = expected_words(stream);
    GuardedBuffer room(expected.size() * 8);
    auto* words = reinterpret_cast<std::uint64_t*>(room.place(expected.size() * 8, 0));
    ASSERT_TRUE(mark_entries(stream.view(), words));
    ASSERT_TRUE(room.surroundings_intact());
    ASSERT_EQ(std::vector<std::uint64_t>(words, words + expected.size()), expected);
    ASSERT_EQ(count_bits(words, expected.size()), stream.indices.size());
  });
}

// Wherever two entries change places, are equal, or one is no index of the dimension: as check_sparse().
TEST(Bitmap, SeesBrokenContracts) {
  with_streams([](const TestStream& stream, std::mt19937_64& random) {
    const std::size_t count = stream.indices.size();
    if (count < 2) return;
    const std::size_t width = index_size(stream.index_type);
    std::vector<std::uint64_t> words(bitmap_words(stream.dimension));
    for (int kind = 0; kind < 4; ++kind) {
      TestStream broken = stream;
      const std::size_t at = random() % (count - 1);
      const std::size_t other = kind == 3 ? count - 1 : at + 1;
      std::byte* bytes = broken.index_bytes.data();
      if (kind == 0) std::memcpy(bytes + at * width, bytes + other * width, width);
      if (kind == 1 || kind == 3) {
        if (at == other) continue;
        std::swap_ranges(bytes + at * width, bytes + (at + 1) * width, bytes + other * width);
      }
      if (kind == 2) std::memcpy(bytes + (count - 1) * width, &broken.dimension, width);
      ASSERT_FALSE(check_sparse(broken.view()).ok());
      ASSERT_FALSE(mark_entries(broken.view(), words.data())) << "kind " << kind << " at " << at;
    }
  });
}

// Nothing beside the room is touched: values end where memory does.
TEST(Bitmap, SpreadsAndPacks) {
  with_streams([](const TestStream& stream, std::mt19937_64& random) {
    const std::vector<std::uint64_t> words = expected_words(stream);
    const std::size_t width = dtype_size(stream.value_type);
    const std::size_t index_bytes = index_size(stream.index_type);
    const std::size_t count = stream.indices.size();
    const BitmapKernels kernels = bitmap_kernels(stream.value_type, stream.index_type);
    Bytes dense(words.size() * 64 * width);
    for (std::size_t i = 0; i < count; ++i)
      std::memcpy(dense.data() + stream.indices[i] * width, stream.value(i), width);

    GuardedBuffer packed_room(count * width);
    GuardedBuffer spread_room(dense.size());
    std::uint8_t* packed = packed_room.place(count * width, 0);
    if (count > 0) std::memcpy(packed, stream.values.data(), count * width);
    auto* spread = reinterpret_cast<std::byte*>(spread_room.place(dense.size(), random() % 3));
    std::fill(spread, spread + dense.size(), std::byte{0x77});
    ASSERT_EQ(kernels.spread(words.data(), words.size(), reinterpret_cast<std::byte*>(packed), spread),
              count);
    ASSERT_EQ(std::memcmp(spread, dense.data(), dense.size()), 0);
    ASSERT_TRUE(spread_room.surroundings_intact());

    GuardedBuffer value_room(count * width + kPackSlack);
    GuardedBuffer index_room(count * index_bytes + kPackSlack);
    auto* values = reinterpret_cast<std::byte*>(value_room.place(count * width + kPackSlack, random() % 3));
    auto* indices = reinterpret_cast<std::byte*>(index_room.place(count * index_bytes + kPackSlack, 0));
    ASSERT_EQ(kernels.pack(words.data(), words.size(), dense.data(), values), count);
    ASSERT_EQ(kernels.indices(words.data(), words.size(), 0, indices), count);
    ASSERT_TRUE(value_room.surroundings_intact());
    ASSERT_TRUE(index_room.surroundings_intact());
    if (count == 0) return;
    ASSERT_EQ(std::memcmp(values, stream.values.data(), count * width), 0);
    ASSERT_EQ(std::memcmp(indices, stream.index_bytes.data(), count * index_bytes), 0);
  });
}

TEST(Bitmap, IndicesBeyond32Bits) {
  const std::uint64_t words[] = {0b1001, ~std::uint64_t{0}};
  std::vector<std::uint64_t> indices(66 + 8);
  const std::uint64_t first = std::uint64_t{1} << 40;
  const BitmapKernels kernels = bitmap_kernels(DType::f32, IndexType::u64);
  ASSERT_EQ(kernels.indices(words, 2, first, reinterpret_cast<std::byte*>(indices.data())), 66U);
  EXPECT_EQ(indices[0], first);
  EXPECT_EQ(indices[1], first + 3);
  for (std::uint64_t i = 0; i < 64; ++i)
    EXPECT_EQ(indices[2 + i], first + 64 + i);
}

TEST(Bitmap, CopiesPastTheCache) {
  std::mt19937_64 random(5);
  for (const std::int64_t target : runnable_targets()) {
    const ScopedTarget scope(target);
    for (std::size_t bytes = 0; bytes < 700; bytes += 1 + random() % 9) {
      Bytes from(bytes + 64);
      for (std::byte& b : from)
        b = static_cast<std::byte>(random());
      GuardedBuffer room(bytes);
      std::uint8_t* to = room.place(bytes, random() % 64);
      const std::size_t shift = random() % 64;
      streamed_copy(to, from.data() + shift, bytes);
      ASSERT_TRUE(room.surroundings_intact());
      ASSERT_EQ(std::memcmp(to, from.data() + shift, bytes), 0);
    }
  }
}

}  // namespace
}  // namespace heddle::test
