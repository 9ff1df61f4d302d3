// Folded streams against dense vectors, index by index: the same bits, with zeros where a stream has no entry
// of a sum, and what is there alone for minima and maxima.
#include "sparse/merge.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "../kernels/guarded_buffer.hpp"
#include "../kernels/targets.hpp"
#include "engine/kernels/kernels.hpp"
#include "streams.hpp"
#include "support/ranks.hpp"

namespace heddle {
namespace {

using Bytes = std::vector<std::byte>;

template <typename Index>
struct Stream {
  std::vector<Index> indices;
  Bytes values;
};

// Gaps between entries: of one length about, or short ones with long ones in between.
struct Pattern {
  std::uint64_t gap;   // mean, at least 1
  std::uint64_t runs;  // entries next to each other, on average; 1 for none
};

template <typename Index>
std::vector<Index> random_indices(std::uint64_t first, std::size_t count, Pattern pattern,
                                  std::mt19937_64& random) {
  std::vector<Index> indices;
  std::uint64_t at = first;
  for (std::size_t i = 0; i < count; ++i) {
    if (random() % pattern.runs == 0) at += random() % (2 * pattern.gap * pattern.runs - 1);
    if (at > std::numeric_limits<Index>::max()) break;
    indices.push_back(static_cast<Index>(at++));
    if (at == 0) break;
  }
  return indices;
}

// Bits that break rules: zeros of both signs, NaN both quiet and not, infinities, subnormals, and any others.
Bytes random_values(std::size_t count, DType type, std::mt19937_64& random) {
  const std::size_t width = dtype_size(type);
  Bytes values(count * width);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t bits = random();
    const std::uint64_t sign = std::uint64_t{1} << (8 * width - 1);
    const std::uint64_t infinity = type == DType::f16    ? 0x7c00
                                   : type == DType::bf16 ? 0x7f80
                                   : type == DType::f32  ? 0x7f800000
                                                         : 0x7ff0000000000000;
    switch (random() % 10) {
      case 0:
      case 1:
      case 2:
        bits = sign;
        break;
      case 3:
        bits = 0;
        break;
      case 4:
        bits = infinity | (bits & sign);
        break;
      case 5:
        bits = infinity | (random() % 8 + 1) | (bits & sign);
        break;
      case 6:
        bits = random() % 16 | (bits & sign);
        break;
      default:
        break;
    }
    std::memcpy(values.data() + i * width, &bits, width);
  }
  return values;
}

template <typename Index>
using Folded = std::map<Index, Bytes>;

template <typename Index>
Folded<Index> expected_fold(const std::vector<Stream<Index>>& streams, DType type, Op op) {
  const std::size_t width = dtype_size(type);
  std::map<Index, std::vector<const void*>> values;
  static constexpr std::uint64_t kZero = 0;
  for (std::size_t s = 0; s < streams.size(); ++s) {
    for (std::size_t i = 0; i < streams[s].indices.size(); ++i) {
      auto& inputs = values[streams[s].indices[i]];
      if (op == Op::sum) {
        inputs.resize(streams.size(), &kZero);
        inputs[s] = streams[s].values.data() + i * width;
      } else {
        inputs.push_back(streams[s].values.data() + i * width);
      }
    }
  }
  Folded<Index> folded;
  const FoldFn fold = fold_kernel(type, op);
  for (const auto& [index, inputs] : values) {
    Bytes& value = folded[index];
    value.resize(width);
    fold(value.data(), nullptr, inputs.data(), static_cast<unsigned>(inputs.size()), 1);
  }
  return folded;
}

// Inputs at odd addresses, and outputs with room for no more than they may need.
template <typename Index>
void folds(const std::vector<Stream<Index>>& streams, DType type, Op op, std::size_t gap) {
  const std::size_t width = dtype_size(type);
  std::vector<Bytes> memory;
  std::vector<SparseView> views;
  std::size_t room = 0;
  for (const Stream<Index>& stream : streams) {
    const std::size_t count = stream.indices.size();
    memory.emplace_back(1 + count * sizeof(Index));
    if (count > 0) std::memcpy(memory.back().data() + 1, stream.indices.data(), count * sizeof(Index));
    const auto* indices = memory.back().data() + 1;
    memory.emplace_back(3 + count * width);
    if (count > 0) std::memcpy(memory.back().data() + 3, stream.values.data(), count * width);
    views.push_back({UINT64_MAX, count, sizeof(Index) == 4 ? IndexType::u32 : IndexType::u64, type, indices,
                     memory.back().data() + 3});
    room += count;
  }
  test::GuardedBuffer index_room(room * sizeof(Index));
  test::GuardedBuffer value_room(room * width);
  const std::uint8_t* indices = index_room.place(room * sizeof(Index), gap);
  const std::uint8_t* values = value_room.place(room * width, gap);
  const std::size_t count =
      fold_sparse(views, op, const_cast<std::uint8_t*>(indices), const_cast<std::uint8_t*>(values));
  ASSERT_TRUE(index_room.surroundings_intact());
  ASSERT_TRUE(value_room.surroundings_intact());
  const Folded<Index> expected = expected_fold(streams, type, op);
  ASSERT_EQ(count, expected.size());
  std::size_t i = 0;
  for (const auto& [index, value] : expected) {
    Index found = 0;
    std::memcpy(&found, indices + i * sizeof found, sizeof found);
    ASSERT_EQ(found, index) << "entry " << i;
    ASSERT_EQ(std::memcmp(values + i * width, value.data(), width), 0)
        << "entry " << i << ", index " << index;
    ++i;
  }
}

enum class Relation : std::uint8_t { independent, identical, disjoint, some_empty };

template <typename Index>
std::vector<Stream<Index>> random_streams(std::size_t streams, std::size_t count, Pattern pattern,
                                          Relation relation, std::uint64_t first, DType type,
                                          std::mt19937_64& random) {
  std::vector<Stream<Index>> result(streams);
  const std::uint64_t apart = count * pattern.gap * 2 + 1;
  for (std::size_t s = 0; s < streams; ++s) {
    Stream<Index>& stream = result[s];
    if (relation == Relation::identical && s > 0) {
      stream.indices = result[0].indices;
    } else if (relation != Relation::some_empty || random() % 2 == 0) {
      // Some much longer than others.
      const std::size_t here = relation == Relation::independent && s % 3 == 2 ? count / 50 : count;
      const std::uint64_t begin = relation == Relation::disjoint ? first + (streams - 1 - s) * apart : first;
      stream.indices = random_indices<Index>(begin, here, pattern, random);
    }
    stream.values = random_values(stream.indices.size(), type, random);
  }
  return result;
}

template <typename Index>
void folds_all(std::size_t streams, std::size_t count, Pattern pattern, Relation relation,
               std::uint64_t first, std::mt19937_64& random) {
  for (const DType type : test::kSummedTypes) {
    for (const Op op : {Op::sum, Op::min, Op::max}) {
      SCOPED_TRACE(std::string(fold_target()) + " " + dtype_name(type) + " " + op_name(op) + " streams " +
                   std::to_string(streams) + " count " + std::to_string(count) + " gap " +
                   std::to_string(pattern.gap) + " runs " + std::to_string(pattern.runs) + " relation " +
                   std::to_string(static_cast<int>(relation)) + " index " + std::to_string(sizeof(Index)));
      const auto inputs = random_streams<Index>(streams, count, pattern, relation, first, type, random);
      ASSERT_NO_FATAL_FAILURE(folds(inputs, type, op, random() % 5));
    }
  }
}

constexpr Pattern kPatterns[] = {{1, 1}, {2, 1}, {9, 1}, {40, 1}, {3000, 1}, {2, 30}, {500, 20}};

TEST(FoldSparse, GivesTheBitsOfTheDenseFold) {
  for (const std::int64_t target : test::runnable_targets()) {
    const test::ScopedTarget scope(target);
    std::mt19937_64 random(1);
    for (const std::size_t streams :
         test::kSlowBuild ? std::vector<std::size_t>{2, 17} : std::vector<std::size_t>{1, 2, 3, 5, 17}) {
      for (const Pattern pattern : kPatterns) {
        for (const Relation relation :
             {Relation::independent, Relation::identical, Relation::disjoint, Relation::some_empty}) {
          ASSERT_NO_FATAL_FAILURE(folds_all<std::uint32_t>(streams, 300, pattern, relation, 7, random));
          ASSERT_NO_FATAL_FAILURE(folds_all<std::uint64_t>(streams, 150, pattern, relation,
                                                           (std::uint64_t{1} << 63) - 5000, random));
        }
      }
    }
  }
}

// Long enough for several tiles and several merges side by side.
TEST(FoldSparse, LongStreams) {
  std::mt19937_64 random(2);
  for (const std::size_t streams :
       test::kSlowBuild ? std::vector<std::size_t>{4} : std::vector<std::size_t>{2, 4}) {
    for (const Pattern pattern : kPatterns) {
      for (const Relation relation : {Relation::independent, Relation::identical}) {
        ASSERT_NO_FATAL_FAILURE(folds_all<std::uint32_t>(streams, 7000, pattern, relation, 0, random));
        if (test::kSlowBuild && relation == Relation::identical) continue;
        ASSERT_NO_FATAL_FAILURE(
            folds_all<std::uint64_t>(streams, 7000, pattern, relation, UINT64_MAX / 2, random));
      }
    }
  }
}

// Up to the very last index, whose successor is no number, through every way of folding.
TEST(FoldSparse, TheLastIndices) {
  std::mt19937_64 random(3);
  for (const std::size_t streams : {2, 3}) {
    for (const std::uint64_t gap : {1, 5, 300}) {
      const std::uint64_t before = 5000 * gap;
      ASSERT_NO_FATAL_FAILURE(folds_all<std::uint32_t>(streams, 8000, {gap, 1}, Relation::independent,
                                                       0xffffffff - before, random));
      std::vector<Stream<std::uint64_t>> wide(streams);
      for (auto& stream : wide) {
        stream.indices = random_indices<std::uint64_t>(UINT64_MAX - before, 4000, {gap, 1}, random);
        if (stream.indices.back() != UINT64_MAX) stream.indices.push_back(UINT64_MAX);
        stream.values = random_values(stream.indices.size(), DType::f32, random);
      }
      ASSERT_NO_FATAL_FAILURE(folds(wide, DType::f32, Op::sum, 0));
    }
  }
}

// More streams than a tile counts.
TEST(FoldSparse, HundredsOfStreams) {
  std::mt19937_64 random(4);
  for (const std::size_t streams : {255, 256, 600}) {
    ASSERT_NO_FATAL_FAILURE(folds_all<std::uint32_t>(streams, 40, {2, 1}, Relation::identical, 0, random));
    ASSERT_NO_FATAL_FAILURE(folds_all<std::uint32_t>(streams, 40, {2, 1}, Relation::independent, 0, random));
  }
}

// -0 is kept where every stream has it, and nowhere else.
TEST(FoldSparse, NegativeZeros) {
  for (const std::size_t streams : {2, 3, 255, 256}) {
    for (const std::uint32_t step : {1, 3, 1000}) {
      std::vector<Stream<std::uint32_t>> all(streams);
      for (std::size_t s = 0; s < streams; ++s) {
        for (std::uint32_t i = 0; i < 3000; ++i)
          if (s != 1 || i % 2 == 0) all[s].indices.push_back(i * step);
        all[s].values.resize(all[s].indices.size() * 4);
        for (std::size_t i = 0; i < all[s].indices.size(); ++i)
          all[s].values[i * 4 + 3] = std::byte{0x80};
        if (streams > 100 && s > 20) all[s] = all[20];
      }
      ASSERT_NO_FATAL_FAILURE(folds(all, DType::f32, Op::sum, 0)) << streams << " streams, step " << step;
    }
  }
}

TEST(FoldSparse, NothingAndNothing) {
  const SparseView nothing{10, 0, IndexType::u32, DType::f32, nullptr, nullptr};
  const SparseView both[] = {nothing, nothing};
  EXPECT_EQ(fold_sparse(both, Op::sum, nullptr, nullptr), 0U);
  EXPECT_EQ(fold_sparse({}, Op::sum, nullptr, nullptr), 0U);
  EXPECT_EQ(fold_sparse(std::span(&nothing, 1), Op::sum, nullptr, nullptr), 0U);
}

}  // namespace
}  // namespace heddle
