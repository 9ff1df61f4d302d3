// Dense vectors to streams and back, with each instruction set, against one look at a time.
#include "sparse/convert.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "../kernels/guarded_buffer.hpp"
#include "../kernels/targets.hpp"

namespace heddle {
namespace {

constexpr DType kTypes[] = {DType::f16, DType::f32, DType::i32, DType::f64};

// A zero element, or one with any bits: often one bit alone, so that -0 and the smallest numbers are there.
std::vector<std::uint8_t> random_vector(std::size_t count, std::size_t width, double density,
                                        std::mt19937_64& random) {
  std::vector<std::uint8_t> dense(count * width);
  std::bernoulli_distribution has(density);
  for (std::size_t i = 0; i < count; ++i) {
    if (!has(random)) continue;
    if (random() % 2 == 0) {
      dense[i * width + random() % width] = static_cast<std::uint8_t>(1U << random() % 8);
    } else {
      for (std::size_t k = 0; k < width; ++k)
        dense[i * width + k] = static_cast<std::uint8_t>(random() | 1);
    }
  }
  return dense;
}

bool is_zero(const std::uint8_t* element, std::size_t width) {
  for (std::size_t k = 0; k < width; ++k)
    if (element[k] != 0) return false;
  return true;
}

template <typename Index>
void there_and_back(std::size_t count, DType type, double density, std::uint64_t first,
                    std::mt19937_64& random) {
  const std::size_t width = dtype_size(type);
  const std::vector<std::uint8_t> dense = random_vector(count, width, density, random);
  std::vector<Index> indices;
  std::vector<std::uint8_t> values;
  for (std::size_t i = 0; i < count; ++i) {
    if (is_zero(dense.data() + i * width, width)) continue;
    indices.push_back(static_cast<Index>(first + i));
    values.insert(values.end(), dense.data() + i * width, dense.data() + (i + 1) * width);
  }
  test::GuardedBuffer input(dense.size());
  test::GuardedBuffer index_room(indices.size() * sizeof(Index));
  test::GuardedBuffer value_room(values.size());
  std::uint8_t* from = input.place(dense.size(), random() % 4);
  if (!dense.empty()) std::memcpy(from, dense.data(), dense.size());
  ASSERT_EQ(count_nonzero(from, count, type), indices.size());
  std::uint8_t* index_to = index_room.place(indices.size() * sizeof(Index), random() % 4);
  std::uint8_t* value_to = value_room.place(values.size(), random() % 4);
  const IndexType index_type = sizeof(Index) == 4 ? IndexType::u32 : IndexType::u64;
  ASSERT_EQ(take_nonzero(from, first, count, type, index_type, index_to, value_to), indices.size());
  ASSERT_TRUE(index_room.surroundings_intact());
  ASSERT_TRUE(value_room.surroundings_intact());
  if (!indices.empty()) {
    ASSERT_EQ(std::memcmp(index_to, indices.data(), indices.size() * sizeof(Index)), 0);
    ASSERT_EQ(std::memcmp(value_to, values.data(), values.size()), 0);
  }
  test::GuardedBuffer output(dense.size());
  std::uint8_t* to = output.place(dense.size(), random() % 4);
  std::memset(to, 0, dense.size());
  scatter({first + count, indices.size(), index_type, type, index_to, value_to}, first, to);
  ASSERT_TRUE(output.surroundings_intact());
  ASSERT_TRUE(dense.empty() || std::memcmp(to, dense.data(), dense.size()) == 0);
}

TEST(Convert, TakesWhatHasABitSet) {
  for (const std::int64_t target : test::runnable_targets()) {
    const test::ScopedTarget scope(target);
    std::mt19937_64 random(1);
    for (const DType type : kTypes) {
      for (const std::size_t count : {0, 1, 15, 63, 64, 65, 200, 1000}) {
        for (const double density : {0.0, 0.01, 0.1, 0.5, 1.0}) {
          SCOPED_TRACE(std::string(fold_target()) + " " + dtype_name(type) + " " + std::to_string(count) +
                       " " + std::to_string(density));
          ASSERT_NO_FATAL_FAILURE(there_and_back<std::uint32_t>(count, type, density, 5, random));
          const std::uint64_t last = (std::uint64_t{1} << 32) - count;
          ASSERT_NO_FATAL_FAILURE(there_and_back<std::uint32_t>(count, type, density, last, random));
          ASSERT_NO_FATAL_FAILURE(
              there_and_back<std::uint64_t>(count, type, density, std::uint64_t{1} << 40, random));
        }
      }
    }
  }
}

TEST(Convert, SampledDensityIsNearTheTrueOne) {
  std::mt19937_64 random(1);
  for (const DType type : kTypes) {
    const std::size_t width = dtype_size(type);
    for (const double density : {0.0, 0.02, 0.5, 1.0}) {
      const std::size_t count = 1'000'003;
      const std::vector<std::uint8_t> dense = random_vector(count, width, density, random);
      EXPECT_NEAR(sampled_density(dense.data(), count, type, 4096), density, 0.02 * (density + 0.1));
      const auto all = static_cast<double>(count_nonzero(dense.data(), count, type));
      EXPECT_EQ(sampled_density(dense.data(), count, type, count), all / static_cast<double>(count));
    }
    const std::vector<std::uint8_t> few = random_vector(1000, width, 1, random);
    for (std::size_t count = 0; count < 70; ++count)
      for (std::size_t samples = 0; samples < 12; ++samples)
        EXPECT_EQ(sampled_density(few.data(), count, type, samples), count == 0 || samples == 0 ? 0 : 1);
  }
}

// Whole pieces behind each other, and of a long vector equally far apart.
TEST(Convert, SampledPiecesAreSpread) {
  constexpr std::size_t kSamples = 256;
  for (const std::size_t pieces : {257, 511, 512, 4'095, 4'096, 4'351, 16'384, 1'000'003}) {
    const std::size_t count = 16 * pieces;
    const auto first = [&](std::size_t s) { return sampled_piece(count, DType::f32, kSamples, s).first; };
    const std::size_t apart = first(1) - first(0);
    EXPECT_LE(first(0), 16 * (pieces / kSamples + kSamples));
    for (std::size_t s = 0; s < kSamples; ++s) {
      EXPECT_EQ(first(s) % 16, 0U);
      EXPECT_EQ(sampled_piece(count, DType::f32, kSamples, s).count, 16U);
      EXPECT_LE(first(s) + 16, s + 1 < kSamples ? first(s + 1) : count);
      if (pieces >= kEqualParts * kSamples) {
        EXPECT_EQ(first(s), first(0) + apart * s) << pieces;
      }
    }
  }
}

}  // namespace
}  // namespace heddle
