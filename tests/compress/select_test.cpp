// Selections against a sort of all entries; the bounds of the sampled one; random positions.
#include "compress/select.hpp"

#include <gtest/gtest.h>

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <vector>

#include "compress/random.hpp"
#include "kernels/guarded_buffer.hpp"
#include "kernels/targets.hpp"
#include "samples.hpp"

namespace heddle {
namespace {

using test::Kind;

std::uint64_t rank_key(float value) {
  if (std::isnan(value)) return ~0U;
  return std::bit_cast<std::uint32_t>(std::abs(value));
}

std::vector<std::uint64_t> reference(const std::vector<float>& values, std::size_t k) {
  std::vector<std::uint64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&](std::uint64_t i) { return values[i] == 0; });
  k = std::min(k, order.size());
  const auto end = order.begin() + static_cast<std::ptrdiff_t>(k);
  std::nth_element(order.begin(), end, order.end(), [&](std::uint64_t a, std::uint64_t b) {
    const std::uint64_t x = rank_key(values[a]);
    const std::uint64_t y = rank_key(values[b]);
    return x != y ? x > y : a < b;
  });
  order.resize(k);
  std::ranges::sort(order);
  return order;
}

std::vector<std::uint64_t> to_wide(const Indices& indices) {
  std::vector<std::uint64_t> result;
  for (std::size_t i = 0; i < indices.size(); ++i)
    result.push_back(indices[i]);
  return result;
}

void has_the_values(const std::vector<float>& values, const SelectedEntries& selection) {
  ASSERT_EQ(selection.indices.size(), selection.values.size());
  ASSERT_FALSE(selection.indices.is_wide);
  for (std::size_t i = 0; i < selection.values.size(); ++i)
    ASSERT_EQ(std::bit_cast<std::uint32_t>(selection.values[i]),
              std::bit_cast<std::uint32_t>(values[selection.indices[i]]));
}

void selects_like_a_sort(const std::vector<float>& values, std::size_t k) {
  const SelectedEntries selection = top_k(values.data(), values.size(), k);
  ASSERT_NO_FATAL_FAILURE(has_the_values(values, selection));
  ASSERT_EQ(to_wide(selection.indices), reference(values, k)) << "n " << values.size() << " k " << k;
}

// Few different magnitudes of either sign, NaNs with several payloads, infinities and zeros.
std::vector<float> with_ties(std::size_t n, std::uint64_t seed) {
  const float choices[] = {0,
                           -0.0F,
                           1,
                           -1,
                           2,
                           1e-40F,
                           INFINITY,
                           -INFINITY,
                           std::bit_cast<float>(0x7F800001U),
                           std::bit_cast<float>(0xFFFFFFFFU),
                           1,
                           0};
  std::mt19937_64 random(seed);
  std::vector<float> values(n);
  for (float& value : values)
    value = choices[random() % std::size(choices)];
  return values;
}

TEST(TopK, EqualsASort) {
  for (const std::size_t n : test::kSizes) {
    for (const std::size_t k :
         {std::size_t{0}, std::size_t{1}, std::size_t{5}, n / 100, n / 10, n / 2, n - n / 8, n, n + 5}) {
      for (const Kind kind : test::kKinds)
        ASSERT_NO_FATAL_FAILURE(selects_like_a_sort(test::sample(kind, n, n + k), k));
      ASSERT_NO_FATAL_FAILURE(selects_like_a_sort(with_ties(n, n + k), k));
    }
  }
}

TEST(TopK, RisingAndFallingOverrunTheRoomAgainAndAgain) {
  std::vector<float> values(60000);
  std::iota(values.begin(), values.end(), -300.0F);
  for (const std::size_t k : {1, 63, 64, 1000, 20000}) {
    ASSERT_NO_FATAL_FAILURE(selects_like_a_sort(values, k));
    std::ranges::reverse(values);
    ASSERT_NO_FATAL_FAILURE(selects_like_a_sort(values, k));
    std::ranges::reverse(values);
  }
}

TEST(TopK, NoZerosAndNansFirst) {
  std::vector<float> values(100, 0.0F);
  values[7] = -0.0F;
  values[30] = 1e-45F;
  EXPECT_EQ(to_wide(top_k(values.data(), 100, 10).indices), (std::vector<std::uint64_t>{30}));
  values[50] = INFINITY;
  values[60] = std::bit_cast<float>(0xFF800001U);
  values[61] = std::bit_cast<float>(0x7FFFFFFFU);
  EXPECT_EQ(to_wide(top_k(values.data(), 100, 1).indices), (std::vector<std::uint64_t>{60}));
  EXPECT_EQ(to_wide(top_k(values.data(), 100, 3).indices), (std::vector<std::uint64_t>{50, 60, 61}));
}

// More NaNs than there is room for: later ones, though with larger payloads, do not push out the first.
TEST(TopK, ManyNansAreTies) {
  std::vector<float> values(50000, std::bit_cast<float>(0x7F800001U));
  for (std::size_t i = 25000; i < 50000; ++i)
    values[i] = std::bit_cast<float>(0xFFFFFFFFU);
  ASSERT_NO_FATAL_FAILURE(selects_like_a_sort(values, 100));
}

constexpr std::size_t kLong = (std::size_t{1} << 20) + 37;

std::vector<std::vector<float>> long_vectors() {
  std::vector<std::vector<float>> all;
  for (const Kind kind : test::kKinds)
    all.push_back(test::sample(kind, kLong, 5));
  all.emplace_back(kLong, 0.0F);
  all.emplace_back(kLong, 0.0F).at(777777) = -1e30F;
  all.emplace_back(kLong, 0.5F).at(777777) = NAN;
  auto& rising = all.emplace_back(kLong);
  std::iota(rising.begin(), rising.end(), 1.0F);
  auto& few = all.emplace_back(kLong, 0.0F);
  for (std::size_t i = 0; i < kLong; i += 400)
    few[i] = static_cast<float>(i + 1);
  // All that is large lies together.
  auto& block = all.emplace_back(test::sample(Kind::gradient, kLong, 6));
  for (std::size_t i = 500000; i < 512000; ++i)
    block[i] = static_cast<float>(i);
  return all;
}

TEST(TopK, EqualsASortWhereItSamples) {
  for (const auto& values : long_vectors())
    for (const std::size_t k : {std::size_t{1}, std::size_t{100}, kLong / 100, kLong / 5})
      ASSERT_NO_FATAL_FAILURE(selects_like_a_sort(values, k));
}

// Magnitudes at the places where top_k() looks, and others elsewhere: its threshold is then too high, or too
// low.
TEST(TopK, EqualsASortWhereTheSampleMisleads) {
  constexpr std::size_t kParts = 65536;
  const std::size_t part = kLong / kParts;
  for (const float at_sample : {10.0F, 0.1F, 0.0F}) {
    std::vector<float> values(kLong);
    for (std::size_t i = 0; i < kLong; ++i)
      values[i] = 1 + static_cast<float>(i % 1000) * 1e-3F;
    for (std::size_t i = 0; i < kParts; ++i)
      values[i * part + random64(kLong, i) % part] = at_sample;
    for (const std::size_t k : {std::size_t{100}, kLong / 100, kLong / 10, kLong / 5})
      ASSERT_NO_FATAL_FAILURE(selects_like_a_sort(values, k));
  }
}

void keeps_its_word(const std::vector<float>& values, std::size_t k, std::uint64_t seed) {
  const std::size_t n = values.size();
  const SelectedEntries selection = top_k_sampled(values.data(), n, k, seed);
  ASSERT_NO_FATAL_FAILURE(has_the_values(values, selection));
  const std::size_t count = selection.values.size();
  const auto exact = reference(values, k);
  const auto indices = to_wide(selection.indices);
  if (indices == exact) return;
  ASSERT_GE(2 * count + 1, k);
  ASSERT_LE(2 * count, 3 * k);
  // Everything that is not below the least of them.
  std::uint64_t least = ~std::uint64_t{0};
  for (const float value : selection.values)
    least = std::min(least, rank_key(value));
  std::size_t above = 0;
  for (const float value : values)
    above += static_cast<std::size_t>(value != 0 && rank_key(value) >= least);
  ASSERT_EQ(above, count);
  ASSERT_TRUE(std::ranges::is_sorted(indices, std::ranges::less_equal()) || std::ranges::is_sorted(indices));
}

TEST(TopKSampled, KeepsItsWord) {
  for (const auto& values : long_vectors())
    for (const std::size_t k :
         {std::size_t{0}, std::size_t{1}, std::size_t{1100}, kLong / 100, kLong / 10, kLong})
      ASSERT_NO_FATAL_FAILURE(keeps_its_word(values, k, k + 1));
  for (const std::size_t n : test::kSizes)
    ASSERT_NO_FATAL_FAILURE(keeps_its_word(test::sample(Kind::gradient, n, n), n / 10, 1));
}

TEST(TopKSampled, IsExactWhereTheSampleMisleads) {
  constexpr std::uint64_t kSeed = 3;
  constexpr std::size_t kParts = 65536;
  const std::size_t part = kLong / kParts;
  for (const float at_sample : {10.0F, 0.1F}) {
    std::vector<float> values(kLong, 1.0F);
    for (std::size_t i = 0; i < kParts; ++i)
      values[i * part + random64(kSeed, i) % part] = at_sample;
    for (const std::size_t k : {kLong / 100, kLong / 5}) {
      const SelectedEntries selection = top_k_sampled(values.data(), kLong, k, kSeed);
      ASSERT_EQ(to_wide(selection.indices), reference(values, k)) << at_sample << " " << k;
    }
  }
}

// One more than it may take is above the threshold, and found at the very end, when the room still suffices.
TEST(TopKSampled, IsExactWhereTheLastEntryIsOneTooMany) {
  constexpr std::size_t kTaken = kLong / 20;
  constexpr std::size_t kMost = kTaken + kTaken / 2;
  std::vector<float> values(kLong, 0.5F);
  for (std::size_t i = 0; i < kMost; ++i)
    values[i * 13] = 1;
  values[kLong - 1] = -1;
  const SelectedEntries selection = top_k_sampled(values.data(), kLong, kTaken, 1);
  ASSERT_EQ(to_wide(selection.indices), reference(values, kTaken));
}

TEST(TopKSampled, SavesTheSelectionWhereTheSampleIsGood) {
  const auto values = test::sample(Kind::gradient, kLong, 9);
  const std::size_t count = top_k_sampled(values.data(), kLong, kLong / 50, 2).values.size();
  EXPECT_NE(count, kLong / 50);
  EXPECT_NEAR(static_cast<double>(count), kLong / 50.0, kLong / 500.0);
}

TEST(TopK, EveryInstructionSetGivesTheSame) {
  auto values = with_ties(10037, 3);
  const auto more = test::sample(Kind::any_bits, 10000, 3);
  values.insert(values.end(), more.begin(), more.end());
  for (const std::int64_t target : test::runnable_targets()) {
    const test::ScopedTarget scope(target);
    for (const std::size_t k : {3, 700, 9000, 18000})
      ASSERT_NO_FATAL_FAILURE(selects_like_a_sort(values, k));
  }
}

TEST(TopK, ReadsNothingBeyondTheVector) {
  for (const std::size_t n : {1, 63, 64, 65, 130}) {
    for (const std::size_t gap : {0, 1, 5}) {
      test::GuardedBuffer buffer(n * sizeof(float));
      auto* values = reinterpret_cast<float*>(buffer.place(n * sizeof(float), gap * sizeof(float)));
      std::fill_n(values, n, 1.0F);
      EXPECT_EQ(top_k(values, n, n).values.size(), n);
    }
  }
}

// Pages that nobody has written read as zeros and take no memory.
TEST(TopK, MoreThan32BitsOfIndices) {
  constexpr std::size_t kN = (std::size_t{1} << 32) + 1000;
  constexpr std::size_t kBytes = kN * sizeof(float);
  void* memory =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) GTEST_SKIP() << "no room for 16 GiB of addresses";
  auto* values = static_cast<float*>(memory);
  values[12] = 3;
  values[kN - 1] = -4;
  values[kN - 500] = 2;
  const SelectedEntries selection = top_k(values, kN, 2);
  EXPECT_TRUE(selection.indices.is_wide);
  EXPECT_EQ(selection.indices.wide, (std::vector<std::uint64_t>{12, kN - 1}));
  EXPECT_EQ(selection.values, (std::vector<float>{3, -4}));
  munmap(memory, kBytes);
}

TEST(RandomK, DistinctSortedAndTheSame) {
  for (const std::uint64_t n :
       {std::uint64_t{1}, std::uint64_t{10}, std::uint64_t{1000}, std::uint64_t{1} << 32,
        (std::uint64_t{1} << 32) + 1, std::uint64_t{1} << 50}) {
    for (const std::size_t k : {0, 1, 7, 999, 1000, 20000}) {
      const Indices indices = random_k(n, k, 5);
      ASSERT_EQ(indices.size(), std::min<std::uint64_t>(k, n));
      ASSERT_EQ(indices.is_wide, n > std::uint64_t{1} << 32);
      for (std::size_t i = 0; i < indices.size(); ++i) {
        ASSERT_LT(indices[i], n);
        ASSERT_TRUE(i == 0 || indices[i - 1] < indices[i]);
      }
      ASSERT_EQ(to_wide(indices), to_wide(random_k(n, k, 5)));
      if (n > 1000 && k > 0) {
        ASSERT_NE(to_wide(indices), to_wide(random_k(n, k, 6)));
      }
    }
  }
}

// The ranks of a job may be different machines.
TEST(RandomK, PositionsAreThoseOfEveryMachine) {
  EXPECT_EQ(random_k(1000, 5, 42).narrow, (std::vector<std::uint32_t>{343, 505, 555, 568, 656}));
  EXPECT_EQ(random_k(std::uint64_t{1} << 40, 3, 7).wide,
            (std::vector<std::uint64_t>{367311699460, 449361090752, 792183676099}));
}

TEST(RandomK, EverySetIsAsLikely) {
  constexpr int kDraws = 60000;  // of 15 sets of 2 out of 6
  int counts[6][6] = {};
  for (std::uint64_t seed = 0; seed < kDraws; ++seed) {
    const Indices pair = random_k(6, 2, seed);
    ++counts[pair[0]][pair[1]];
  }
  double chi = 0;
  for (int a = 0; a < 6; ++a)
    for (int b = a + 1; b < 6; ++b)
      chi += std::pow(counts[a][b] - kDraws / 15.0, 2) / (kDraws / 15.0);
  EXPECT_LT(chi, 36.1);  // 14 degrees of freedom: one in a thousand is above
}

TEST(RandomK, CoversTheRangeEvenly) {
  constexpr std::uint64_t kN = 1U << 20;
  const Indices indices = random_k(kN, 100000, 9);
  int counts[16] = {};
  for (std::size_t i = 0; i < indices.size(); ++i)
    ++counts[indices[i] * 16 / kN];
  for (const int count : counts)
    EXPECT_NEAR(count, 6250, 350);
}

TEST(RandomK, Gathers) {
  const std::vector<float> values = {0, 10, 20, 30};
  Indices indices;
  indices.narrow = {1, 3};
  EXPECT_EQ(gather(values.data(), indices), (std::vector<float>{10, 30}));
}

}  // namespace
}  // namespace heddle
