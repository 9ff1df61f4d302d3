#include "common/stats.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "common/results.hpp"

namespace heddle::bench {
namespace {

TEST(Median, MiddleOrMeanOfTheMiddleTwo) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median(std::vector<double>{3}), 3);
  EXPECT_EQ(median(std::vector<double>{9, 1, 5}), 5);
  EXPECT_EQ(median(std::vector<double>{4, 1, 9, 2}), 3);
}

TEST(MedianInterval, TakesTheOrderStatisticsOfTheBinomialTable) {
  const struct {
    int n, low, high;
  } table[] = {{6, 1, 6},   {9, 2, 8},   {10, 2, 9},   {15, 4, 12},
               {20, 6, 15}, {25, 8, 18}, {40, 14, 27}, {41, 14, 28}};
  for (const auto& row : table) {
    // 1 to n, not in order: the ends of the interval are then the ranks of its order statistics.
    std::vector<double> values;
    for (int i = 0; i < row.n; ++i)
      values.push_back((i * 7) % row.n + 1);
    const Interval interval = median_interval(values);
    EXPECT_EQ(interval.low, row.low) << "n = " << row.n;
    EXPECT_EQ(interval.high, row.high) << "n = " << row.n;
  }
}

TEST(MedianInterval, IsTheWholeRangeOfTooFewValues) {
  const Interval interval = median_interval(std::vector<double>{5, 1, 3});
  EXPECT_EQ(interval.low, 1);
  EXPECT_EQ(interval.high, 5);
  EXPECT_EQ(median_interval({}).high, 0);
}

double coverage(const std::function<double(std::mt19937_64&)>& draw, double truth, int n) {
  constexpr int kTrials = 4000;
  std::mt19937_64 random(11);
  int hits = 0;
  std::vector<double> values(static_cast<std::size_t>(n));
  for (int trial = 0; trial < kTrials; ++trial) {
    for (double& value : values)
      value = draw(random);
    const Interval interval = median_interval(values);
    hits += interval.low <= truth && truth <= interval.high ? 1 : 0;
  }
  return static_cast<double>(hits) / kTrials;
}

TEST(MedianInterval, CoversTheMedianOfAnyDistribution) {
  std::exponential_distribution<double> exponential(1);
  std::lognormal_distribution<double> lognormal(2, 1);
  std::cauchy_distribution<double> cauchy(5, 3);
  for (const int n : {9, 41, 100}) {
    for (const double covered : {coverage([&](auto& r) { return exponential(r); }, std::log(2.0), n),
                                 coverage([&](auto& r) { return lognormal(r); }, std::exp(2.0), n),
                                 coverage([&](auto& r) { return cauchy(r); }, 5, n)}) {
      EXPECT_GT(covered, 0.942) << "n = " << n;
      EXPECT_LT(covered, 0.985) << "n = " << n;  // and no wider than it must be
    }
  }
}

TEST(BootstrapRatios, IntervalCoversTheRatioOfMedians) {
  constexpr int kTrials = 400;
  constexpr double kRatio = 2;
  std::mt19937_64 random(5);
  std::lognormal_distribution<double> mood(0, 0.5);  // of the machine: common to both sides of a round
  std::lognormal_distribution<double> noise(0, 0.2);
  int hits = 0;
  std::vector<double> a(41);
  std::vector<double> b(41);
  for (int trial = 0; trial < kTrials; ++trial) {
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double common = mood(random);
      a[i] = kRatio * common * noise(random);
      b[i] = common * noise(random);
    }
    const Interval interval =
        central_interval(bootstrap_ratios(a, b, 400, static_cast<std::uint64_t>(trial), block_length(a, b)));
    hits += interval.low <= kRatio && kRatio <= interval.high ? 1 : 0;
  }
  EXPECT_GT(static_cast<double>(hits) / kTrials, 0.91);
  EXPECT_LT(static_cast<double>(hits) / kTrials, 0.99);
}

TEST(BootstrapRatios, KeepsRoundsTogether) {
  // Rounds differ by a factor of a thousand, but within each the ratio is exactly 3.
  std::vector<double> a;
  std::vector<double> b;
  for (int i = 0; i < 15; ++i) {
    b.push_back(std::pow(10, i % 4));
    a.push_back(3 * b.back());
  }
  for (const double ratio : bootstrap_ratios(a, b, 100, 1, 4))
    EXPECT_DOUBLE_EQ(ratio, 3);
}

// Of how many of 400 AR(1) series of log times the interval has the ratio; `block` 0: as long as the rule
// says.
double coverage_of_ar(double rho, std::size_t block) {
  constexpr int kTrials = 400;
  std::mt19937_64 random(3);
  std::normal_distribution<double> step(0, 0.1);
  int hits = 0;
  std::vector<double> a(41);
  std::vector<double> b(41);
  for (int trial = 0; trial < kTrials; ++trial) {
    double logs[2] = {step(random) / std::sqrt(1 - rho * rho), step(random) / std::sqrt(1 - rho * rho)};
    for (std::size_t i = 0; i < a.size(); ++i) {
      for (double& value : logs)
        value = rho * value + step(random);
      a[i] = 2 * std::exp(logs[0]);
      b[i] = std::exp(logs[1]);
    }
    const std::size_t length = block == 0 ? block_length(a, b) : block;
    const Interval interval =
        central_interval(bootstrap_ratios(a, b, 300, static_cast<std::uint64_t>(trial), length));
    hits += interval.low <= 2 && 2 <= interval.high ? 1 : 0;
  }
  return static_cast<double>(hits) / kTrials;
}

// Rounds that are like those before them, as with small messages: drawn one by one they look like more than
// they are.
TEST(BootstrapRatios, BlocksCoverWhereRoundsDependOnEachOther) {
  const double single = coverage_of_ar(0.7, 1);
  const double blocks = coverage_of_ar(0.7, 0);
  EXPECT_LT(single, 0.75);
  EXPECT_GT(blocks, single + 0.1);
  EXPECT_GT(blocks, 0.77);
  EXPECT_GT(coverage_of_ar(0, 0), 0.89) << "and no less where they do not";
}

TEST(BlockLength, GrowsWithTheRoundsAndWithWhatTheyHaveInCommon) {
  const std::vector<double> same(64, 1.0);
  EXPECT_GE(block_length(same, same), 4U);
  std::vector<double> slow;
  std::vector<double> alternating;
  for (int i = 0; i < 64; ++i) {
    slow.push_back(2 + std::sin(i / 5.0));
    alternating.push_back(1 + i % 2);
  }
  EXPECT_EQ(block_length(alternating, alternating), 4U);
  EXPECT_GT(block_length(slow, alternating), 10U);
  EXPECT_LE(block_length(slow, slow), 64U / 3);
  EXPECT_EQ(block_length(std::vector<double>{1}, std::vector<double>{2}), 1U);
}

TEST(GeometricMean, OfPositiveValues) {
  EXPECT_EQ(geometric_mean({}), 0);
  EXPECT_DOUBLE_EQ(geometric_mean(std::vector<double>{2, 8}), 4);
}

TEST(Summary, NamesTheWorstSize) {
  std::vector<ComparedRow> rows(2);
  rows[0].bytes = 4;
  rows[0].ratio = 8;
  rows[0].bootstrap = {8, 8};
  rows[1].bytes = 64;
  rows[1].ratio = 2;
  rows[1].bootstrap = {2, 4.5};
  const Summary summary = summarize(rows);
  EXPECT_DOUBLE_EQ(summary.geometric_mean, 4);
  EXPECT_DOUBLE_EQ(summary.interval.low, 4);
  EXPECT_DOUBLE_EQ(summary.interval.high, 6);
  EXPECT_EQ(summary.lowest, 2);
  EXPECT_EQ(summary.lowest_bytes, 64U);
  EXPECT_EQ(summarize({}).geometric_mean, 0);
}

}  // namespace
}  // namespace heddle::bench
