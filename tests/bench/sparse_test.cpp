// What heddle_sparse_allreduce draws and how it reads its command line.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "sparse/entries.hpp"
#include "sparse/options.hpp"
#include "sparse/results.hpp"
#include "sparse/sparse_bench.hpp"

namespace heddle::bench {
namespace {

constexpr Pattern kPatterns[] = {Pattern::uniform, Pattern::clustered, Pattern::identical, Pattern::skewed};

SparseParsed parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "test");
  return parse_sparse_options(static_cast<int>(arguments.size()), arguments.data());
}

TEST(SparseEntries, AreAsManyAsWantedAndRise) {
  for (const Pattern pattern : kPatterns) {
    for (const std::size_t dimension : {1U, 7U, 1000U, 12345U}) {
      for (const std::size_t count : {std::size_t{1}, dimension / 100, dimension / 3, dimension}) {
        if (count == 0) continue;
        const auto indices = draw_indices(pattern, dimension, count, 1);
        ASSERT_EQ(indices.size(), count);
        EXPECT_LT(indices.back(), dimension);
        EXPECT_EQ(std::adjacent_find(indices.begin(), indices.end(), std::greater_equal<>()), indices.end());
      }
    }
  }
}

TEST(SparseEntries, DifferBetweenRanksUnlessIdentical) {
  for (const Pattern pattern : kPatterns) {
    const bool same = draw_indices(pattern, 100000, 1000, 0) == draw_indices(pattern, 100000, 1000, 1);
    EXPECT_EQ(same, pattern == Pattern::identical);
  }
}

TEST(SparseEntries, KeepTheirShape) {
  const auto skewed = draw_indices(Pattern::skewed, 1'000'000, 1000, 0);
  const auto hot = std::count_if(skewed.begin(), skewed.end(), [](auto index) { return index < 1000; });
  EXPECT_EQ(hot, 900);
  const auto runs = draw_indices(Pattern::clustered, 1'000'000, 10'000, 0);
  std::size_t breaks = 0;
  for (std::size_t i = 1; i < runs.size(); ++i)
    breaks += runs[i] != runs[i - 1] + 1;
  EXPECT_LT(breaks, 10'000 / 64);
  EXPECT_GT(breaks, 10'000 / 300);
}

TEST(SparseRounds, GoThroughAllOrders) {
  for (const int sides : {2, 3}) {
    std::set<std::vector<int>> orders;
    const int all = sides == 3 ? 6 : 2;
    for (int round = 0; round < all; ++round)
      orders.insert(order_of_sides(sides, round));
    EXPECT_EQ(orders.size(), static_cast<std::size_t>(all));
    for (const std::vector<int>& order : orders)
      EXPECT_EQ(std::set<int>(order.begin(), order.end()).size(), static_cast<std::size_t>(sides));
    EXPECT_EQ(order_of_sides(sides, all), order_of_sides(sides, 0));
  }
}

TEST(SparseOptions, ReadsAllOfThem) {
  const SparseParsed parsed = parse({"--dimension", "2M", "--density", "0.5,20", "--pattern", "skewed",
                                     "--api", "in-place", "--dtype", "float64", "--no-mpi", "-c", "--wire"});
  ASSERT_TRUE(parsed.run) << parsed.text;
  EXPECT_EQ(parsed.options.dimension, std::size_t{2} << 20);
  EXPECT_EQ(parsed.options.densities, (std::vector<double>{0.5, 20}));
  EXPECT_EQ(parsed.options.pattern, Pattern::skewed);
  EXPECT_EQ(parsed.options.api, SparseApi::in_place);
  EXPECT_EQ(parsed.options.dtype, Dtype::float64);
  EXPECT_FALSE(parsed.options.mpi);
  EXPECT_EQ(parsed.options.entries(0.5), 10486U);
  EXPECT_EQ(parsed.options.entries(1e-9), 1U);
}

TEST(SparseOptions, RefusesWhatMakesNoSense) {
  for (const std::vector<const char*>& wrong :
       {std::vector{"--dimension", "0"}, std::vector{"--dimension", "2G"}, std::vector{"--density", "0"},
        std::vector{"--density", "nan"}, std::vector{"--max-seconds", "nan"}, std::vector{"--dtype", "int8"},
        std::vector{"--api", "dense"}}) {
    const SparseParsed parsed = parse(wrong);
    EXPECT_FALSE(parsed.run) << wrong[0] << " " << wrong[1];
    EXPECT_EQ(parsed.code, 2);
  }
}

TEST(SparseResults, CountsWhatPairsWouldTake) {
  EXPECT_EQ(pair_bytes_of("recursive_doubling", 2, 100, 180, 4), 100 * 8);
  EXPECT_EQ(pair_bytes_of("recursive_doubling", 4, 100, 100, 4), 2 * 100 * 8);
  EXPECT_EQ(pair_bytes_of("split_allgather", 2, 100, 180, 8), (50 + 90) * 12);
}

}  // namespace
}  // namespace heddle::bench
