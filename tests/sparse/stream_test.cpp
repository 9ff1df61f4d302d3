// Sparse streams against plain maps.
#include "sparse/stream.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

namespace heddle {
namespace {

template <typename Index, typename Value>
SparseView view_of(std::uint64_t dimension, const std::vector<Index>& indices,
                   const std::vector<Value>& values, DType type) {
  return {dimension, indices.size(), sizeof(Index) == 4 ? IndexType::u32 : IndexType::u64,
          type,      indices.data(), values.data()};
}

TEST(CheckSparse, NamesTheEntryThatBreaksTheContract) {
  const std::vector<float> values(4, 1.0F);
  const auto message = [&](const std::vector<std::uint32_t>& indices, std::uint64_t dimension) {
    return check_sparse(view_of(dimension, indices, values, DType::f32)).message();
  };
  EXPECT_EQ(message({}, 0), "");
  EXPECT_EQ(message({0, 1, 7, 9}, 10), "");
  EXPECT_EQ(message({0, 1, 7, 10}, 10), "index 10 of entry 3 is not less than the dimension, 10");
  EXPECT_NE(message({0, 7, 7, 9}, 10).find("index 7 of entry 2 is not greater than that before it, 7"),
            std::string::npos);
  EXPECT_NE(message({5, 4, 7, 9}, 10).find("entry 1"), std::string::npos);
  const std::vector<std::uint64_t> wide{std::uint64_t{1} << 39, (std::uint64_t{1} << 40) - 1};
  EXPECT_TRUE(check_sparse(view_of(std::uint64_t{1} << 40, wide, values, DType::f32)).ok());
  EXPECT_NE(check_sparse(view_of(10, wide, values, DType::u8)).message().find("uint8"), std::string::npos);
  SparseView garbage = view_of(std::uint64_t{1} << 40, wide, values, DType::f32);
  garbage.count = std::size_t{1} << 60;
  EXPECT_NE(check_sparse(garbage).message().find("count 1152921504606846976 is more than the indices"),
            std::string::npos);
}

template <typename Index>
void sorts_like_a_map(std::uint64_t dimension, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (int round = 0; round < 200; ++round) {
    const std::size_t count = random() % 60;
    std::vector<Index> indices(count);
    std::vector<double> values(count);
    std::map<Index, double> expected;
    // Few different ones: duplicates are the point. Left to right, as the sum promises.
    const std::uint64_t different = 1 + random() % 40;
    for (std::size_t i = 0; i < count; ++i) {
      indices[i] = static_cast<Index>(random() % different * (dimension / different) % dimension);
      values[i] = 1.0 / static_cast<double>(random() % 1000 + 1);
      const auto [at, fresh] = expected.emplace(indices[i], values[i]);
      if (!fresh) at->second += values[i];
    }
    std::size_t kept = count;
    const IndexType type = sizeof(Index) == 4 ? IndexType::u32 : IndexType::u64;
    ASSERT_TRUE(sort_sparse(dimension, type, indices.data(), DType::f64, values.data(), &kept).ok());
    indices.resize(kept);
    values.resize(kept);
    ASSERT_TRUE(check_sparse(view_of(dimension, indices, values, DType::f64)).ok());
    ASSERT_EQ(kept, expected.size());
    std::size_t i = 0;
    for (const auto& [index, value] : expected) {
      ASSERT_EQ(indices[i], index);
      ASSERT_EQ(values[i], value) << "summed in another order";
      ++i;
    }
  }
}

TEST(SortSparse, GivesWhatAMapGives) {
  sorts_like_a_map<std::uint32_t>(1000, 1);
  sorts_like_a_map<std::uint32_t>(std::uint64_t{1} << 32, 2);
  sorts_like_a_map<std::uint64_t>(std::uint64_t{1} << 40, 3);
}

TEST(SortSparse, LeavesEverythingWhereAnIndexIsOutOfRange) {
  std::vector<std::uint32_t> indices{5, 3, 10};
  std::vector<std::int32_t> values{1, 2, 3};
  std::size_t count = 3;
  const Status status = sort_sparse(10, IndexType::u32, indices.data(), DType::i32, values.data(), &count);
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_EQ(status.message(), "index 10 of entry 2 is not less than the dimension, 10");
  EXPECT_EQ(indices, (std::vector<std::uint32_t>{5, 3, 10}));
  EXPECT_EQ(values, (std::vector<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(count, 3U);
  EXPECT_FALSE(sort_sparse(10, IndexType::u32, indices.data(), DType::c32, values.data(), &count).ok());
  count = std::size_t{1} << 60;
  EXPECT_EQ(sort_sparse(10, IndexType::u32, indices.data(), DType::i32, values.data(), &count).message(),
            "count 1152921504606846976 is more entries than memory can hold");
}

}  // namespace
}  // namespace heddle
